// The one place where octavo's version stands: the build, the Python package and the program read it here.
#ifndef OCTAVO_VERSION_H_
#define OCTAVO_VERSION_H_

#define OCTAVO_VERSION "0.1.0"

#endif  // OCTAVO_VERSION_H_
