#include "octavo/runtime/threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "octavo/ir/memory.h"
#include "octavo/runtime/host_threads.h"

namespace octavo::runtime {
namespace {

TEST(PartsOf, AreEvenSharesOfTheThreads) {
  EXPECT_EQ(PartsOf(128, 48, 2), 2);  // three parts of 48 rows would leave one thread idle for a third of the time
  EXPECT_EQ(PartsOf(100, 48, 8), 3);  // fewer than threads: as many as the grain allows
  EXPECT_EQ(PartsOf(48, 48, 2), 1);
  EXPECT_EQ(PartsOf(1000, 1, 1), 1);
  for (int threads = 2; threads < 20; ++threads) {
    for (int64_t n = 1; n < 400; ++n) {
      const int64_t parts = PartsOf(n, 7, threads);
      ASSERT_GE(parts, 1);
      ASSERT_LE(parts, 4 * threads);
      ASSERT_LE(parts, (n + 6) / 7) << "more parts than grains";
      if (parts > threads) {
        ASSERT_EQ(parts % threads, 0);
      }
    }
  }
}

TEST(Threads, DoEveryTaskOnce) {
  for (int count : {1, 2, 5}) {
    const Threads threads(count);
    std::vector<std::atomic<int>> done(100);
    threads.For(100, [&](int64_t i) { ++done[static_cast<size_t>(i)]; });
    for (const auto& d : done) EXPECT_EQ(d, 1);
  }
}

// A waiting thread may run other tasks: whoever holds scratch memory keeps it.
TEST(Threads, AreTheHostsWhereAModelIsCompiledForOne) {
  std::atomic<int> calls = 0;
  const auto host = [&calls](int64_t n, const std::function<void(int64_t)>& task) {
    ++calls;
    for (int64_t i = n; i-- > 0;) task(i);
  };
  std::optional<Threads> lent, inner, own;
  {
    const CompileForHost around(host);
    lent.emplace(3);
    {
      const CompileForHost nested([](int64_t, const std::function<void(int64_t)>&) {});
      inner.emplace(3);
    }
    own.emplace(3);  // `around` counts again
  }
  std::vector<int> done(5);
  const auto once = [&done](int64_t i) { ++done[static_cast<size_t>(i)]; };
  lent->For(5, once);
  own->For(5, once);
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(done, std::vector<int>(5, 2));
  inner->For(5, once);
  Threads(3).For(5, once);
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(done, std::vector<int>(5, 3));
  EXPECT_EQ(lent->count(), 3);
}

TEST(TaskScratch, IsOfItsHolderAndNotOfTheThread) {
  const TaskScratch outer(100000);
  const TaskScratch inner(200000), third(300000), fourth(10);
  const std::set<const std::byte*> different = {outer.data(), inner.data(), third.data(), fourth.data()};
  EXPECT_EQ(different.size(), 4u);
  for (const std::byte* data : different) EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0u);
}

TEST(TaskScratch, MoreThanThereIsThrows) {
  EXPECT_THROW(TaskScratch(std::numeric_limits<size_t>::max()), ir::OutOfMemory);
  EXPECT_THROW(TaskScratch(size_t{1} << 60), ir::OutOfMemory);
  const TaskScratch still(64);
  EXPECT_NE(still.data(), nullptr);
}

// An exception of a task leaves For on the calling thread, whoever ran the task; the host's threads see none.
TEST(Threads, HandOnWhatATaskThrows) {
  const auto fails = [](int64_t i) {
    if (i == 7) throw std::runtime_error("task 7");
  };
  const auto host = [](int64_t n, const std::function<void(int64_t)>& task) {
    std::thread other([&]() noexcept {
      for (int64_t i = 0; i < n; ++i) task(i);
    });
    other.join();
  };
  const Threads one(1), two(2), guest(2, host);
  for (const Threads* threads : {&one, &two, &guest}) EXPECT_THROW(threads->For(10, fails), std::runtime_error);
}

// Tasks of one For come from one caller alone, while it waits too: with tasks of others on top of it a run would last as long as theirs.
TEST(Threads, RunNoTasksOfOthersWhileTheyWait) {
  const Threads threads(2);
  constexpr int kCallers = 8;
  std::vector<std::thread> callers;
  std::atomic<int> foreign = 0;
  for (int caller = 0; caller < kCallers; ++caller) {
    callers.emplace_back([&, caller] {
      thread_local int inside = -1;
      for (int round = 0; round < 50; ++round) {
        threads.For(6, [&](int64_t) {
          const int before = std::exchange(inside, caller);
          if (before != -1) ++foreign;
          threads.For(6, [&](int64_t) {
            if (inside != caller && inside != -1) ++foreign;
          });
          inside = before;
        });
      }
    });
  }
  for (std::thread& t : callers) t.join();
  EXPECT_EQ(foreign, 0);
}

}  // namespace
}  // namespace octavo::runtime
