// octavo_campaign: mutated models by the number, each the whole way (way.h), in child processes whose signals, time, memory, files and words
// are watched. Needs no clang. The seed is printed; with the same seeds of models it replays every case.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>

#include "octavo/fuzz/child.h"
#include "octavo/fuzz/seeds.h"
#include "octavo/fuzz/shrink.h"
#include "octavo/fuzz/way.h"

namespace octavo::fuzz {
namespace {

namespace fs = std::filesystem;

struct Flags {
  uint64_t seed = 0, first = 0, count = 1000;
  int jobs = 1, batch = 50, convolutions = 8;
  size_t most = 100'000;
  std::string keep, file, shrink;
  std::vector<fs::path> where;
  bool verbose = false;
};

// What became of all cases.
class Tally {
 public:
  explicit Tally(bool verbose) : verbose_(verbose) {}

  void Case(const std::string& station, const std::string& refusal) {
    const std::lock_guard lock(mutex_);
    ++cases_, ++stations_[station];
    if (cases_ % 5000 == 0) std::printf("%lld cases so far\n", static_cast<long long>(cases_)), std::fflush(stdout);
    if (verbose_ && !refusal.empty()) ++refusals_[station + ": " + WithoutNames(refusal)];
  }
  void Count(const std::string& what) {
    const std::lock_guard lock(mutex_);
    ++counts_[what];
  }
  void Peak(int64_t kb) {
    const std::lock_guard lock(mutex_);
    peak_kb_ = std::max(peak_kb_, kb);
  }
  // True: the first of its kind.
  bool Find(uint64_t index, const std::string& kind, const std::string& detail) {
    const std::lock_guard lock(mutex_);
    found_[kind].push_back(index);
    const bool fresh = kinds_.insert(kind + ": " + WithoutNames(detail)).second;
    if (fresh) std::printf("case %llu: %s: %s\n", static_cast<unsigned long long>(index), kind.c_str(), detail.c_str());
    if (fresh) std::fflush(stdout);
    return fresh;
  }

  int Print(const Flags& flags) {
    std::printf("\n%lld cases, seed %llu; peak of memory %lld MB\n", static_cast<long long>(cases_),
                static_cast<unsigned long long>(flags.seed), static_cast<long long>(peak_kb_ / 1024));
    std::printf("where they ended:\n");
    for (const auto& [what, n] : stations_) std::printf("  %8lld %s\n", static_cast<long long>(n), what.c_str());
    std::printf("what was compared:\n");
    for (const auto& [what, n] : counts_) std::printf("  %8lld %s\n", static_cast<long long>(n), what.c_str());
    for (const auto& [what, n] : refusals_)
      std::printf("  %8lld refused, %s\n", static_cast<long long>(n), what.c_str());
    std::printf("findings: %zu kinds\n", found_.size());
    for (const auto& [what, cases] : found_) {
      std::printf("  %8zu %s:", cases.size(), what.c_str());
      for (size_t i = 0; i < std::min<size_t>(cases.size(), 20); ++i)
        std::printf(" %llu", static_cast<unsigned long long>(cases[i]));
      std::printf("%s\n", cases.size() > 20 ? " ..." : "");
    }
    return found_.empty() ? 0 : 1;
  }

 private:
  // Quoted names and numbers differ from case to case.
  static std::string WithoutNames(const std::string& text) {
    std::string out;
    char quote = 0;
    for (const char c : text) {
      if (quote != 0) {
        if (c == quote) quote = 0;
      } else if (c == '\'') {
        quote = c, out += "''";
      } else if (std::isdigit(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '.') {
        out += c;
      } else if (out.empty() || out.back() != '#') {
        out += '#';
      }
    }
    return out.substr(0, 160);
  }

  std::mutex mutex_;
  const bool verbose_;
  int64_t cases_ = 0, peak_kb_ = 0;
  std::map<std::string, int64_t> stations_, counts_, refusals_;
  std::map<std::string, std::vector<uint64_t>> found_;  // the cases
  std::set<std::string> kinds_;
};

// One folder a job, removed with it.
class Folder {
 public:
  explicit Folder(int job) : path_(fs::temp_directory_path() / std::format("octavo_campaign_{}_{}", getpid(), job)) {
    Clean();
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  void Clean() {
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

void WalkOne(const std::string& bytes, uint64_t index, const fs::path& folder, Report& report) {
  report.Begin(index);
  const Passage passage = Walk(bytes, {.folder = folder});
  for (const std::string& what : passage.counts) report.Line("count", what);
  for (const Finding& f : passage.findings) report.Line("finding", f.kind + "\t" + f.detail);
  report.Line("kept", std::to_string(passage.kept));
  report.Line("case", passage.station + "\t" + passage.refusal);
  report.End();
}

// Reads the lines of a child.
class Reader {
 public:
  Reader(Tally& tally, const std::function<void(uint64_t, const Finding&)>& found,
         const std::function<size_t(uint64_t)>& size)
      : tally_(tally), found_(found), size_(size) {}
  void Line(std::string_view line) {
    std::string field[3];
    for (int i = 0; i < 3; ++i) {
      const size_t end = i < 2 ? line.find('\t') : std::string_view::npos;
      field[i] = line.substr(0, end);
      line.remove_prefix(end == std::string_view::npos ? line.size() : end + 1);
    }
    if (field[0] == "begin") index = std::stoull(field[1]), begun = true, kept_ = 0;
    if (field[0] == "kept") kept_ = std::stoll(field[1]);
    if (field[0] == "count") tally_.Count(field[1]);
    if (field[0] == "case") tally_.Case(field[1], field[2]);
    if (field[0] == "finding") found_(index, {field[1], field[2]});
    if (field[0] == "end") {
      begun = false;
      const int64_t kb = std::stoll(field[1]);
      tally_.Peak(kb);
      // 1 GB and four times the file, beside what the walk itself keeps.
      if (kb * 1024 - kept_ > (int64_t{1} << 30) + 4 * static_cast<int64_t>(size_(index)))
        found_(index, {"memory", std::format("{} MB", kb / 1024)});
    }
  }

  uint64_t index = 0;
  bool begun = false;

 private:
  Tally& tally_;
  const std::function<void(uint64_t, const Finding&)>& found_;
  const std::function<size_t(uint64_t)>& size_;
  int64_t kept_ = 0;
};

// Cases [from, to) in children; a child that dies takes its case along and another goes on behind it.
void RunCases(uint64_t from, uint64_t to, Folder& folder, Tally& tally,
              const std::function<std::string(uint64_t)>& make,
              const std::function<void(uint64_t, const Finding&)>& found) {
  const std::function<size_t(uint64_t)> size = [&](uint64_t i) { return make(i).size(); };
  while (from < to) {
    folder.Clean();
    Reader reader(tally, found, size);
    const Ended ended = RunChild(
        [&](Report& report) {
          for (uint64_t i = from; i < to; ++i) WalkOne(make(i), i, folder.path(), report);
        },
        [&](std::string_view line) { reader.Line(line); });
    if (ended.well) return;
    tally.Case("died", {});
    found(reader.index, {"died", ended.how + "; " + ended.printed});
    from = (reader.begun ? reader.index : from) + 1;
  }
}

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream bytes;
  bytes << in.rdbuf();
  return bytes.str();
}

// The findings of one file, printed or not.
std::vector<Finding> FindingsOf(const std::string& bytes, Folder& folder, bool print) {
  Tally tally(print);
  std::vector<Finding> findings;
  RunCases(
      0, 1, folder, tally, [&](uint64_t) { return bytes; }, [&](uint64_t, const Finding& f) { findings.push_back(f); });
  if (!print) return findings;
  for (const Finding& f : findings) tally.Find(0, f.kind, f.detail);
  tally.Print({});
  return findings;
}

int RunFile(const Flags& flags) {
  Folder folder(0);
  std::string bytes = flags.file.empty()
                          ? MakeCase(LoadSeeds(flags.where, flags.most), flags.seed, flags.first, flags.convolutions)
                          : ReadFile(flags.file);
  const std::vector<Finding> findings = FindingsOf(bytes, folder, true);
  if (flags.shrink.empty()) return findings.empty() ? 0 : 1;
  const auto key = [](const Finding& f) { return f.kind + f.detail.substr(0, f.kind == "died" ? 9 : 0); };
  if (!findings.empty()) {
    const std::string wanted = key(findings[0]);
    bytes = Shrink(bytes, [&](const std::string& smaller) {
      const auto found = FindingsOf(smaller, folder, false);
      return std::ranges::any_of(found, [&](const Finding& f) { return key(f) == wanted; });
    });
    FindingsOf(bytes, folder, true);
  }
  std::ofstream(flags.shrink, std::ios::binary) << bytes;
  std::printf("%s: %zu bytes\n", flags.shrink.c_str(), bytes.size());
  return findings.empty() ? 0 : 1;
}

// SIGINT and SIGTERM end a campaign behind the cases at hand, with its counts.
volatile std::sig_atomic_t stopped = 0;
void Stop(int) { stopped = 1; }

int RunCampaign(const Flags& flags) {
  const std::vector<Seed> seeds = LoadSeeds(flags.where, flags.most);
  if (seeds.empty())
    return std::fprintf(stderr, "octavo_campaign: no .onnx file of at most %zu bytes was found\n", flags.most), 2;
  std::printf("%zu seeds; --seed %llu replays this\n", seeds.size(), static_cast<unsigned long long>(flags.seed));
  std::fflush(stdout);
  Tally tally(flags.verbose);
  std::atomic<uint64_t> next = flags.first;
  const uint64_t end = flags.first + flags.count;
  const auto make = [&](uint64_t i) { return MakeCase(seeds, flags.seed, i, flags.convolutions); };
  std::atomic<int> alone = flags.jobs;
  const auto found = [&](uint64_t i, const Finding& f) {
    if (f.kind == "memory") {  // of a process that had walked other cases before; malloc keeps some of theirs
      Folder folder(alone++);
      const auto again = FindingsOf(make(i), folder, false);
      if (std::ranges::none_of(again, [](const Finding& x) { return x.kind == "memory"; })) return;
    }
    if (!tally.Find(i, f.kind, f.detail) || flags.keep.empty()) return;
    std::string name = f.kind;
    std::ranges::replace_if(name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
    std::ofstream(fs::path(flags.keep) / std::format("{}-{}-{}.onnx", name, flags.seed, i), std::ios::binary)
        << make(i);
  };
  std::signal(SIGINT, Stop);
  std::signal(SIGTERM, Stop);
  std::vector<std::thread> jobs;
  jobs.reserve(static_cast<size_t>(flags.jobs));
  for (int job = 0; job < flags.jobs; ++job) {
    jobs.emplace_back([&, job] {
      Folder folder(job);
      const auto batch = static_cast<uint64_t>(flags.batch);
      for (uint64_t from = next.fetch_add(batch); from < end && stopped == 0; from = next.fetch_add(batch))
        RunCases(from, std::min(end, from + batch), folder, tally, make, found);
    });
  }
  for (std::thread& job : jobs) job.join();
  return tally.Print(flags);
}

int Main(int argc, char** argv) {
  Flags flags;
  flags.seed = static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  CLI::App app("mutated models through all of octavo");
  app.add_option("--models", flags.where, "ONNX files, and folders of them, that are mutated")
      ->check(CLI::ExistingPath);
  app.add_option("--seed", flags.seed, "of all cases; default: the time");
  app.add_option("--first", flags.first, "number of the first case")->capture_default_str();
  app.add_option("--count", flags.count, "cases")->capture_default_str();
  app.add_option("--jobs", flags.jobs, "processes")->check(CLI::Range(1, 256))->capture_default_str();
  app.add_option("--most", flags.most, "bytes of a seed; larger ones are left out")->capture_default_str();
  app.add_option("--convolutions", flags.convolutions,
                 "one case in this many is a convolutional graph made at random, in place of a model; 1: all")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--keep", flags.keep, "a folder that takes one case of each kind of finding")
      ->check(CLI::ExistingDirectory);
  app.add_option("--file", flags.file, "one model, as it is, instead of mutants")->check(CLI::ExistingFile);
  app.add_option("--shrink", flags.shrink,
                 "write the smallest model that has the first finding of --file, or of the case --first");
  app.add_flag("-v,--verbose", flags.verbose, "count the sentences that models are refused with");
  CLI11_PARSE(app, argc, argv);
  if (flags.file.empty() && flags.where.empty())
    return std::fprintf(stderr, "octavo_campaign: name files or folders in --models\n"), 2;
  return flags.file.empty() && flags.shrink.empty() ? RunCampaign(flags) : RunFile(flags);
}

}  // namespace
}  // namespace octavo::fuzz

int main(int argc, char** argv) { return octavo::fuzz::Main(argc, argv); }
