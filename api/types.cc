// min_db, min_cosine, max_kl: the fewest layers that leave the type their recipe gives them: each attempt is the whole model, optimized and run on the held-out
// samples, since losses add up only about; where they say it will be is where the search begins. Two steps: Linears to a scale a row made at run time (as fast as
// static int8 to a tenth), then anything to float.
#include <algorithm>
#include <bit>
#include <format>
#include <limits>
#include <ranges>
#include <utility>

#include "octavo/api/layers.h"

namespace octavo::api {

using ir::Graph;
using ir::Result;
using ir::Status;

namespace {

// Layers that change their type together: Linears that read one activation, which else would be quantized twice.
struct Group {
  std::vector<std::string> nodes;
  std::string activation;
  double lost = 0;
};

// Most loss first.
std::vector<Group> GroupsOf(const std::vector<LayerLoss>& layers) {
  std::vector<Group> groups;
  for (const LayerLoss& layer : layers) {
    auto it = groups.end();
    if (!layer.activation.empty()) it = std::ranges::find(groups, layer.activation, &Group::activation);
    if (it == groups.end()) it = groups.insert(groups.end(), {{}, layer.activation, 0});
    if (it->nodes.empty() || layer.lost != it->lost) it->lost += layer.lost;  // the same: they were measured together
    it->nodes.push_back(layer.node);
  }
  std::ranges::stable_sort(groups, std::greater(), &Group::lost);
  return groups;
}

using Names = std::vector<std::string> OptimizeOptions::*;

void Name(const std::vector<Group>& groups, size_t count, std::vector<std::string>& names) {
  for (const Group& group : groups | std::views::take(count)) std::ranges::copy(group.nodes, std::back_inserter(names));
}

// How many of the groups it takes, if what they lose adds up to what the whole does and four fifths of a group's go with its type.
int64_t Guess(const std::vector<Group>& groups, double now) {
  double sum = 0, gone = 0;
  for (const Group& group : groups) sum += group.lost;
  const double needed = 1 - 1 / now;
  for (size_t i = 0; i < groups.size(); ++i) {
    gone += 0.8 * groups[i].lost / sum;
    if (gone >= needed) return static_cast<int64_t>(i) + 1;
  }
  return static_cast<int64_t>(groups.size());
}

class Search {
 public:
  Search(const Graph& model, const OptimizeOptions& options, Evidence& evidence)
      : model_(model), options_(options), evidence_(evidence) {}

  // now: what is lost with none named. To be given up where two attempts in turn name more and lose more than the best before them.
  void GiveUpAbove(const Spent& now) { best_ = now, gives_up_ = true; }
  bool given_up() const { return gives_up_ && worse_ >= kMostWorse; }
  // Of all attempts; there was one.
  const Spent& best() const { return *best_; }
  // The model of the last attempt that kept it: that of what Fewest has found, unless it was known before.
  std::optional<Optimized> Take() { return std::exchange(kept_, std::nullopt); }

  // How many of the groups this list must name for the goal to be kept: more than `few`, which is known not to do (-1: nothing is), and at
  // most all, which is known to do where `all_keep`. Nothing: all do not, or the search is given up. It looks at `guess` first, then twice as
  // far each time in the direction that this tells, and bisects what is left.
  Result<std::optional<size_t>> Fewest(Names list, const std::vector<Group>& groups, int64_t few, bool all_keep,
                                       int64_t guess) {
    const auto all = static_cast<int64_t>(groups.size());
    if (few >= all) return all_keep ? std::optional(groups.size()) : std::nullopt;
    int64_t many = all_keep ? all : all + 1;  // known to do; all + 1: nothing is
    attempts_ = 0;
    total_ = std::bit_width(static_cast<uint64_t>(many - few));
    bool some_keep = false, some_do_not = false;
    for (int64_t next = std::clamp(guess, few + 1, all), step = 1; many - few > 1; step *= 2) {
      OCTAVO_TRY(const bool kept, Keeps(list, groups, next));
      (kept ? many : few) = next;
      (kept ? some_keep : some_do_not) = true;
      if (few == all || (!some_keep && given_up())) return std::nullopt;
      next = !some_keep     ? std::min(few + step, many - 1)
             : !some_do_not ? std::max(many - step, few + 1)
                            : (few + many) / 2;
    }
    return static_cast<size_t>(many);
  }

 private:
  static constexpr int kMostWorse = 2;

  Result<bool> Keeps(Names list, const std::vector<Group>& groups, int64_t count) {
    if (options_.progress) options_.progress("types", attempts_, std::max(total_, attempts_ + 1));
    ++attempts_;
    if (options_.stop != nullptr && options_.stop->load()) return ir::Fail("interrupted");
    OptimizeOptions attempt = options_;
    attempt.progress = nullptr, attempt.after_pass = nullptr;
    Name(groups, static_cast<size_t>(count), attempt.*list);
    OCTAVO_TRY(Optimized result, OptimizeOnce(model_, attempt, evidence_));
    const Spent spent = SpentOf(result, options_).value_or(Spent{.lost = std::numeric_limits<double>::infinity()});
    worse_ = best_ && spent.lost > best_->lost ? worse_ + 1 : 0;
    if (!best_ || spent.lost < best_->lost) best_ = spent;
    if (spent.lost > 1) return false;
    kept_ = std::move(result);
    return true;
  }

  const Graph& model_;
  const OptimizeOptions& options_;
  Evidence& evidence_;
  std::optional<Optimized> kept_;
  std::optional<Spent> best_;
  bool gives_up_ = false;
  int worse_ = 0;  // attempts in turn that lost more than the best
  int64_t attempts_ = 0, total_ = 0;
};

bool IsIn(const std::string& name, const std::vector<std::string>& names) {
  return std::ranges::find(names, name) != names.end();
}

}  // namespace

Result<std::optional<Optimized>> ChooseTypes(const Graph& model, std::vector<LayerLoss>& layers,
                                             OptimizeOptions& options, Evidence& evidence, Spent spent) {
  OCTAVO_TRY(const passes::Pipeline pipeline, PipelineOf(options, model));
  const bool is_static = std::ranges::find(pipeline.passes, "quantize") != pipeline.passes.end();
  std::vector<LayerLoss> linears, now = layers;
  std::ranges::copy_if(layers, std::back_inserter(linears), [](const auto& l) { return l.kind == "linear"; });
  std::vector<Group> rows = is_static ? GroupsOf(linears) : std::vector<Group>();
  const std::vector<std::string> asked = options.dynamic;
  bool kept = false, rows_help = true;
  std::optional<Optimized> chosen;
  if (!rows.empty()) {
    Search search(model, options, evidence);
    search.GiveUpAbove(spent);
    OCTAVO_TRY(const std::optional<size_t> count,
               search.Fewest(&OptimizeOptions::dynamic, rows, 0, false, Guess(GroupsOf(layers), spent.lost)));
    kept = count.has_value();
    if (kept) chosen = search.Take();
    rows_help = !search.given_up();
    spent = search.best();
    Name(rows, count.value_or(rows.size()), options.dynamic);
  }
  if (!kept && !rows.empty()) {  // what they lose now tells which of them to leave in float
    OCTAVO_TRY_STATUS(QuantizeGroups(model, layers, linears, options, evidence));
    std::erase_if(now, [](const LayerLoss& l) { return l.kind == "linear"; });
    std::ranges::copy(linears, std::back_inserter(now));
  }
  if (!kept) {
    const std::vector<Group> groups = GroupsOf(now);
    Search search(model, options, evidence);
    OCTAVO_TRY(const std::optional<size_t> count,
               search.Fewest(&OptimizeOptions::keep_float, groups, 0, false, Guess(groups, spent.lost)));
    if (!count) {
      const Spent& best = search.best();
      return ir::Fail("{} {:g} is not kept even with every layer in float, where it is {:.4g}: ask for less", best.goal,
                      best.asked, best.has);
    }
    Name(groups, *count, options.keep_float);
    // With these in float fewer of the others have to be dynamic.
    std::erase_if(rows, [&](const Group& group) { return IsIn(group.nodes[0], options.keep_float); });
    options.dynamic = asked;
    Search last(model, options, evidence);
    OCTAVO_TRY(const std::optional<size_t> still, last.Fewest(&OptimizeOptions::dynamic, rows, -1, true,
                                                              rows_help ? static_cast<int64_t>(rows.size()) / 2 : 0));
    Name(rows, *still, options.dynamic);
    chosen = last.Take();
  }
  for (LayerLoss& layer : layers) {
    layer.type = IsIn(layer.node, options.keep_float) ? "float"
                 : IsIn(layer.node, options.dynamic)  ? "dynamic"
                                                      : "quantized";
  }
  return chosen;
}

}  // namespace octavo::api
