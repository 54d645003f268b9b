// Passes and rules out of a shared object.
//
//   void AddMine(octavo::passes::Registry& registry, octavo::ir::Status& status) { status = registry.Add(MyRule(), {.version = "1.0", .after = "fuse_float"}); }
//   OCTAVO_PLUGIN("mine", AddMine)
//
// Built against the installed octavo (find_package(octavo), octavo::octavo) as a shared library; loaded by `octavo --plugin libmine.so` or LoadPlugin.
// It must be built with the same octavo and compiler ABI as the program that loads it: both are compared before any of its code runs.
#ifndef OCTAVO_PASSES_PLUGIN_H_
#define OCTAVO_PASSES_PLUGIN_H_

#include <cstdint>
#include <string>

#include "octavo/passes/registry.h"
#include "octavo/version.h"

namespace octavo::passes {

// Sizes of what crosses the border and the C++ runtime's ABI: different where plugin and program cannot understand each other.
struct PluginAbi {
  uint32_t entry = 1;  // of this struct and of Plugin
  uint32_t cxx = __GXX_ABI_VERSION;
  uint32_t node = sizeof(ir::Node), graph = sizeof(ir::Graph), pass = sizeof(Pass), run = sizeof(PassRun),
           rule = sizeof(pattern::Rule);
  bool operator==(const PluginAbi&) const = default;
};

// What the C function `octavo_plugin` of a shared object returns.
struct Plugin {
  PluginAbi abi = {};
  const char* octavo = OCTAVO_VERSION;
  const char* name = "";
  void (*add)(Registry& registry, Status& status) = nullptr;
};

// Loads a shared object and lets it add its passes to the registry; the registry is as it was where that fails. The object stays loaded until the
// process ends. Returns the plugin's name. Code of a plugin runs with the rights of the process: load only what you trust.
Result<std::string> LoadPlugin(const std::string& path, Registry& registry);

}  // namespace octavo::passes

#define OCTAVO_PLUGIN(plugin_name, add_function)                                                    \
  extern "C" __attribute__((visibility("default"))) const octavo::passes::Plugin* octavo_plugin() { \
    static const octavo::passes::Plugin plugin{.name = plugin_name, .add = add_function};           \
    return &plugin;                                                                                 \
  }

#endif  // OCTAVO_PASSES_PLUGIN_H_
