#include "octavo/cli/program.h"

int main(int argc, char** argv) { return octavo::cli::Main(argc, argv); }
