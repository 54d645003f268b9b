// A plugin that goes wrong in the way that the variable OCTAVO_ODD_PLUGIN names, when it is loaded or when it adds its passes.
#include <cstdlib>
#include <stdexcept>
#include <string_view>

#include "octavo/passes/plugin.h"

namespace {

using octavo::passes::Plugin;

std::string_view Way() {
  const char* way = std::getenv("OCTAVO_ODD_PLUGIN");
  return way == nullptr ? "" : way;
}

void Add(octavo::passes::Registry&, octavo::ir::Status& status) {
  if (Way() == "throws") throw std::runtime_error("it does not want\nto");
  if (Way() == "throws a number") throw 7;
  if (Way() == "fails") status = octavo::ir::Fail("nothing\x1b to add");
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const Plugin* octavo_plugin() {
  static Plugin plugin;
  plugin = {.name = Way() == "has no name" ? nullptr : "odd", .add = Way() == "adds nothing" ? nullptr : Add};
  if (Way() == "has no version") plugin.octavo = nullptr;
  if (Way() == "throws at once") throw std::runtime_error("not now");
  return Way() == "is nothing" ? nullptr : &plugin;
}
