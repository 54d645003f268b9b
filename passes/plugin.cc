#include "octavo/passes/plugin.h"

#include <dlfcn.h>

#include <format>
#include <utility>

#include "octavo/ir/closed.h"
#include "octavo/ir/names.h"

namespace octavo::passes {

namespace {

Result<std::string> Load(const std::string& path, Registry& registry) {
  // A name without a slash would be looked for in the system's folders.
  const std::string file = path.find('/') == std::string::npos ? "./" + path : path;
  void* object = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (object == nullptr) return ir::Fail("plugin {} cannot be loaded: {}", ir::Quoted(path), ir::Clean(dlerror()));
  const auto entry = reinterpret_cast<const Plugin* (*)()>(dlsym(object, "octavo_plugin"));
  if (entry == nullptr)
    return ir::Fail(
        "{} is no plugin of octavo: it has no function octavo_plugin (OCTAVO_PLUGIN in octavo/passes/plugin.h makes "
        "it)",
        ir::Quoted(path));
  const Plugin* plugin = entry();
  if (plugin == nullptr || plugin->abi.entry != PluginAbi().entry || plugin->abi != PluginAbi() ||
      std::string_view(plugin->octavo) != OCTAVO_VERSION)
    return ir::Fail(
        "plugin {} was built for another octavo or another compiler: build it with the octavo " OCTAVO_VERSION
        " that loads it",
        ir::Quoted(path));
  Registry with = registry;
  Status added;
  plugin->add(with, added);
  if (!added) return ir::Fail("plugin {}: {}", ir::Quoted(path), added.error().message);
  registry = std::move(with);
  return std::string(plugin->name);
}

}  // namespace

Result<std::string> LoadPlugin(const std::string& path, Registry& registry) {
  return ir::Closed("loading a plugin", [&] { return Load(path, registry); });
}

}  // namespace octavo::passes
