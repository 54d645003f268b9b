// The wall of the library, and the account that tensors are charged to.
#include "octavo/ir/closed.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <system_error>
#include <thread>

#include "octavo/ir/graph.h"
#include "octavo/ir/limits.h"
#include "octavo/ir/tensor.h"

namespace octavo::ir {
namespace {

constexpr int64_t kMegabyte = 1'000'000;

Result<Tensor> Make(size_t most, Shape shape) {
  return Closed("reading 'm'", most, [&]() -> Result<Tensor> { return Tensor::Empty(DType::kU8, shape); });
}

TEST(Closed, GivesWhatItsBodyGives) {
  EXPECT_EQ(Closed("x", []() -> Result<int> { return 3; }).value(), 3);
  EXPECT_EQ(Closed("x", []() -> Status { return Fail("no"); }).error().message, "no");
}

TEST(Closed, EveryExceptionIsASentence) {
  const auto sentence = [](auto thrower) {
    return Closed("running 'm'",
                  [&]() -> Status {
                    thrower();
                    return {};
                  })
        .error()
        .message;
  };
  EXPECT_EQ(sentence([] { throw std::bad_alloc(); }), "running 'm': this machine has no more memory");
  EXPECT_EQ(sentence([] { throw std::bad_array_new_length(); }), "running 'm': this machine has no more memory");
  EXPECT_EQ(sentence([] { (void)std::string().at(1); }).find("running 'm': octavo is at fault"), 0u);
  EXPECT_EQ(sentence([] { throw 7; }),
            "running 'm': octavo is at fault, an exception was not expected; please report it");
  EXPECT_NE(sentence([] { OCTAVO_CHECK(1 == 2, "sums of {}", 3); }).find("1 == 2: sums of 3; please report it"),
            std::string::npos);
}

TEST(Closed, SentencesAreOneLineOfText) {
  const auto sentence = [](const std::string& name) {
    return Closed("x", [&]() -> Status { return Fail("node '{}'", name); }).error().message;
  };
  EXPECT_EQ(sentence("na\xc3\xafve"), "node 'na\xc3\xafve'");
  EXPECT_EQ(sentence("a\nb\x1b[2J\x7f"), "node 'a\\x0ab\\x1b[2J\\x7f'");
  EXPECT_EQ(sentence("\xff\xc3(\xed\xa0\x80"), "node '\\xff\\xc3(\\xed\\xa0\\x80'");
  EXPECT_EQ(sentence("\xc2\x9b\xe2\x80\xae"),
            "node '\\xc2\\x9b\\xe2\\x80\\xae'");  // a C1 control, and text turned around
  EXPECT_LT(sentence(std::string(1'000'000, 'a')).size(), 5000u);
}

TEST(Memory, BeyondTheLimitIsASentence) {
  EXPECT_TRUE(Make(20 * kMegabyte, {20 * kMegabyte}));
  const auto refused = Make(20 * kMegabyte, {20 * kMegabyte + 1});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "reading 'm': 20 MB more are beyond the limit of 20 MB for what it holds at once; raise max_memory "
            "if the model needs it");
  EXPECT_TRUE(LacksMemory(refused.error()));
  EXPECT_TRUE(LacksMemory({"calibration failed: " + refused.error().message}));
  EXPECT_FALSE(LacksMemory({"no such file"}));
}

TEST(Memory, SizesThatDoNotFitAreNotWrapped) {
  constexpr int64_t kHuge = int64_t{1} << 40;
  for (const Shape& shape : {Shape{kHuge, kHuge}, Shape{INT64_MAX}, Shape{kHuge, kHuge, kHuge}}) {
    for (const DType dtype : {DType::kU8, DType::kF32, DType::kU4, DType::kString}) {
      const auto made = Closed("x", [&]() -> Result<Tensor> { return Tensor::Empty(dtype, shape); });
      EXPECT_FALSE(made) << ToString(shape);
    }
  }
  EXPECT_EQ(Tensor::Empty(DType::kF32, {kHuge, 0, kHuge}).byte_size(), 0u);
  EXPECT_FALSE(Closed("x", []() -> Result<Tensor> { return Tensor::Empty(DType::kU8, {-1}); }));
}

TEST(Memory, WhatIsGivenBackCanBeTakenAgain) {
  const auto all = Closed("x", 3 * kMegabyte, []() -> Status {
    for (int i = 0; i < 10; ++i) Tensor::Empty(DType::kU8, {2 * kMegabyte});
    const Tensor held = Tensor::Empty(DType::kU8, {2 * kMegabyte});
    Tensor::Empty(DType::kU8, {2 * kMegabyte});
    return {};
  });
  EXPECT_FALSE(all);
}

TEST(Memory, ScopesNestAndTensorsOutliveThem) {
  Tensor kept;
  const Status outer = Closed("outer", kMegabyte, [&]() -> Status {
    const Status inner = Closed("inner", 5 * kMegabyte, [&]() -> Status {
      kept = Tensor::Empty(DType::kU8, {4 * kMegabyte});
      return {};
    });
    EXPECT_TRUE(inner);
    Tensor::Empty(DType::kU8, {2 * kMegabyte});
    return {};
  });
  EXPECT_FALSE(outer);
  std::thread([t = std::move(kept)]() mutable {
    t = {};
  }).join();  // charged to a scope that has ended, freed elsewhere
}

TEST(Limits, DefaultsGrowWithTheFile) {
  EXPECT_EQ(MemoryLimit(Limits{}, 0), static_cast<size_t>(kDefaultMemory));
  EXPECT_EQ(MemoryLimit(Limits{}, 1000), static_cast<size_t>(kDefaultMemory + 4000));
  EXPECT_EQ(MemoryLimit(Limits{}, 1600, 6), static_cast<size_t>(kDefaultMemory + 4 * 1600 + 100 * 6));
  EXPECT_EQ(MemoryLimit(Limits{.max_memory = 5}, 1000, 6), 5u);
  EXPECT_LT(MemoryLimit(Limits{}, INT64_MAX, INT64_MAX), static_cast<size_t>(INT64_MAX));
  EXPECT_EQ(NodeLimit(Limits{}, 160), kDefaultNodes + 10);
  EXPECT_EQ(NodeLimit(Limits{.max_nodes = 7}, 160), 7);
  Graph g;
  g.AddConstant(Tensor::Zeros(DType::kU8, {1000}));
  EXPECT_EQ(MemoryLimit(g), static_cast<size_t>(kDefaultMemory + 4000));
}

TEST(Closed, ThreadsThatTheSystemDoesNotStartAreNoFaultOfOctavo) {
  const auto said = [](auto thrown) { return Closed("here", [&]() -> Status { throw thrown; }).error().message; };
  const std::string sentence =
      "here: the system starts no more threads; ask for fewer, or raise the limit of processes";
  EXPECT_EQ(said(std::runtime_error("pthread_create has failed: Resource temporarily unavailable")), sentence);
  EXPECT_EQ(said(std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again))), sentence);
  EXPECT_TRUE(said(std::system_error(std::make_error_code(std::errc::io_error))).contains("octavo is at fault"));
  EXPECT_TRUE(said(std::runtime_error("another")).contains("octavo is at fault"));
}

}  // namespace
}  // namespace octavo::ir
