// A GGUF file: what its blocks mean in codes and scales is what they mean in floats.
#include "octavo/ir/gguf/gguf.h"

#include <bit>
#include <memory>
#include <string>

#include "octavo/fuzz/targets.h"

namespace octavo::fuzz {

namespace {

struct Bytes : ir::Buffer {
  explicit Bytes(std::string_view from) : kept(from) {
    data_ = reinterpret_cast<std::byte*>(kept.data());
    size_ = kept.size();
  }
  std::string kept;
};

float Decoded(const ir::gguf::Blocks& blocks, bool mins, int64_t i) {
  float w =
      static_cast<float>(blocks.codes.GetInt(i)) * blocks.scale.as<float>()[static_cast<size_t>(i / blocks.group)];
  if (mins)
    w += static_cast<float>(blocks.min_codes.GetInt(i / 16)) *
         blocks.min_scales.as<float>()[static_cast<size_t>(i / 256)];
  return w;
}

void Use(const ir::gguf::TensorInfo& t, std::string_view file) {
  const ir::gguf::Form* form = ir::gguf::FormOf(t.type);
  if (form == nullptr) return;
  const auto floats = ir::gguf::FloatsOf(t, {});
  if (!floats) CheckSentence(floats.error().message, file);
  if (form->group == 0 || t.shape.size() != 2) return;
  for (const bool whole_bytes : {false, true}) {
    const auto blocks = ir::gguf::BlocksOf(t, {}, whole_bytes);
    if (!blocks) CheckSentence(blocks.error().message, file);
    if (!blocks || !floats) continue;
    for (int64_t i = 0; i < floats->size(); ++i) {
      const float w = Decoded(*blocks, form->mins, i), direct = floats->as<float>()[static_cast<size_t>(i)];
      if (std::bit_cast<uint32_t>(w) != std::bit_cast<uint32_t>(direct) && w != direct)
        Broken("codes times scales are the floats", t.name);
    }
  }
}

}  // namespace

void FuzzGguf(std::string_view bytes) {
  const auto file = ir::gguf::File::Parse(std::make_shared<Bytes>(bytes), "the file");
  if (!file) return CheckSentence(file.error().message, bytes);
  for (const ir::gguf::TensorInfo& t : file->tensors()) Use(t, bytes);
}

}  // namespace octavo::fuzz
