#include "octavo/passes/plugin.h"

#include <dlfcn.h>

#include <exception>
#include <format>
#include <new>
#include <string_view>
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
      plugin->octavo == nullptr || std::string_view(plugin->octavo) != OCTAVO_VERSION)
    return ir::Fail(
        "plugin {} was built for another octavo or another compiler: build it with the octavo " OCTAVO_VERSION
        " that loads it",
        ir::Quoted(path));
  if (plugin->name == nullptr || plugin->add == nullptr)
    return ir::Fail("plugin {} has no name or no function that adds its passes; give OCTAVO_PLUGIN both",
                    ir::Quoted(path));
  Registry with = registry;
  Status added;
  plugin->add(with, added);
  if (!added) return ir::Fail("plugin {}: {}", ir::Quoted(path), added.error().message);
  registry = std::move(with);
  return std::string(plugin->name);
}

// What code of a plugin throws is its error, not octavo's.
Result<std::string> Caught(const std::string& path, Registry& registry) {
  const auto thrown = [&](std::string_view what) {
    return ir::Fail("plugin {} throws an exception ({}) when it is loaded; it should set the status instead",
                    ir::Quoted(path), what);
  };
  try {
    return Load(path, registry);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& e) {
    return thrown(e.what());
  } catch (...) {
    return thrown("of a type that has no words");
  }
}

}  // namespace

Result<std::string> LoadPlugin(const std::string& path, Registry& registry) {
  return ir::Closed("loading a plugin", [&] { return Caught(path, registry); });
}

}  // namespace octavo::passes
