// Sums over experts that have nodes of their own (canonical/expert_loops.cc): every way in which an exporter says the share of an expert, and what stays.
#include <gmock/gmock.h>

#include <functional>

#include "octavo/tests/passes/canonical_support.h"

namespace octavo::passes::canonical {
namespace {

constexpr int64_t kExperts = 4, kBest = 2, kIn = 6, kInner = 10;
constexpr double kRounding = 2e-6;  // sums of 4 terms and products of 10, in another order

struct Loop : Builder {
  explicit Loop(SymShape rows = {Sym("b"), Sym("s")}, int64_t experts = kExperts) : count(experts) {
    SymShape shape = rows;
    shape.push_back(Dim(kIn));
    rank = static_cast<int64_t>(shape.size());
    x = In("x", shape);
    scores = Op1(Op::kMatMul, {x, W({kIn, experts}, 0.3f)});
    const NodeId best = g.AddNode(Op::kTopK, {scores, Axis({kBest})}, 2, Attrs{{"axis", int64_t{-1}}});
    index = g.node(best).output(1);
    shares = Op1(Op::kSigmoid, {g.node(best).output(0)});
  }
  ValueId Expert(int64_t e, ValueId rows) {
    const float seed = 0.1f * static_cast<float>(e);
    const ValueId gate = Op1(Op::kAdd, {Op1(Op::kMatMul, {rows, W({kIn, kInner}, seed)}), W({kInner}, seed)});
    const ValueId up = Op1(Op::kMatMul, {rows, W({kIn, kInner}, seed + 0.7f)});
    const ValueId limited = Op1(Op::kMin, {gate, limit});
    const ValueId hidden = Op1(Op::kMul, {Op1(Op::kMul, {limited, Op1(Op::kSigmoid, {limited})}), up});
    return Op1(Op::kMatMul, {hidden, W({kInner, kIn}, seed + 0.2f)});
  }
  ValueId Zeros(ValueId like) { return Op1(Op::kConstantOfShape, {Op1(Op::kShape, {like})}); }
  ValueId Scattered() {
    return Op1(Op::kScatterElements, {Zeros(scores), index, shares}, Attrs{{"axis", int64_t{-1}}});
  }
  ValueId Column(ValueId dense, int64_t e) {
    return Op1(Op::kSlice, {dense, Axis({e}), Axis({e + 1}), Axis({rank - 1}), Axis({1})});
  }
  ValueId Sum(ValueId v, int64_t axis, int64_t keep) {
    return Op1(Op::kReduceSum, {v, Axis({axis})}, Attrs{{"keepdims", keep}});
  }
  ValueId OneHot() { return Op1(Op::kOneHot, {index, I(count), Axis({0, 1})}, Attrs{{"axis", int64_t{-1}}}); }
  // y_1 share(1) + y_2 share(2) + ..
  void Masked(const std::function<ValueId(int64_t)>& share, ValueId first = {}) {
    for (int64_t e = 0; e < count; ++e) {
      const ValueId term = Op1(Op::kMul, {Expert(e, x), share(e)});
      first = first.valid() ? Op1(Op::kAdd, {first, term}) : term;
    }
    Out(first);
  }
  int64_t count, rank;
  ValueId x, scores, index, shares;
  ValueId limit = F(2.5f);
};

size_t Gathered(const std::string& ops) { return Count(ops, "Gather"); }

void ExpectChosen(const Loop& m) {
  const std::string ops = Check(m.g, ExpertLoops, kRounding);
  EXPECT_EQ(Count(ops, "MatMul"), 4u) << ops;  // the router, gate, up, down
  EXPECT_EQ(Gathered(ops), 4u) << ops;         // theirs, and the bias
}
void ExpectKept(const Loop& m) { EXPECT_EQ(Check(m.g, ExpertLoops), Ops(m.g)); }

TEST(ExpertLoops, SharesScatteredIntoZeros) {
  Loop m;
  const ValueId dense = m.Scattered();
  m.Masked([&](int64_t e) { return m.Column(dense, e); });
  ExpectChosen(m);
  Loop gathered({Sym("s")});
  const ValueId all = gathered.Scattered();
  gathered.Masked([&](int64_t e) {
    return gathered.Unsqueeze(gathered.Op1(Op::kGather, {all, gathered.I(e)}, Attrs{{"axis", int64_t{1}}}), {1});
  });
  ExpectChosen(gathered);
}

TEST(ExpertLoops, SharesWhoseIndexIsTheExperts) {
  Loop where;
  where.Masked([&](int64_t e) {
    const ValueId own = where.Op1(Op::kEqual, {where.index, where.I(e)});
    return where.Sum(where.Op1(Op::kWhere, {own, where.shares, where.F(0)}), -1, 1);
  });
  ExpectChosen(where);
  Loop times;
  times.Masked([&](int64_t e) {
    const ValueId own = times.Cast(times.Op1(Op::kEqual, {times.index, times.I(e)}), DType::kF32);
    return times.Unsqueeze(times.Sum(times.Op1(Op::kMul, {times.shares, own}), 2, 0), {2});
  });
  ExpectChosen(times);
}

TEST(ExpertLoops, OneHotRowsTimesShares) {
  Loop m;
  const ValueId product = m.Op1(Op::kMul, {m.Cast(m.OneHot(), DType::kF32), m.Unsqueeze(m.shares, {3})});
  const ValueId dense = m.Sum(product, 2, 0);
  m.Masked([&](int64_t e) { return m.Column(dense, e); });
  ExpectChosen(m);
}

TEST(ExpertLoops, AStackOfAll) {
  for (const bool product : {false, true}) {
    Loop m;
    const ValueId shares = m.Unsqueeze(m.Scattered(), {3});
    std::vector<ValueId> ys;
    for (int64_t e = 0; e < kExperts; ++e) ys.push_back(m.Unsqueeze(m.Expert(e, m.x), {2}));
    const ValueId all = m.Concat(ys, 2);
    m.Out(product ? m.Op1(Op::kSqueeze, {m.Op1(Op::kMatMul, {m.Transpose(all, {0, 1, 3, 2}), shares}), m.Axis({3})})
                  : m.Sum(m.Op1(Op::kMul, {all, shares}), -2, 0));
    ExpectChosen(m);
  }
}

TEST(ExpertLoops, WhatElseIsAddedStays) {
  Loop m;
  const ValueId dense = m.Scattered();
  m.Masked([&](int64_t e) { return m.Column(dense, e); }, m.x);
  ExpectChosen(m);
}

TEST(ExpertLoops, WithoutAnExpertItStays) {
  Loop m({Sym("b"), Sym("s")}, kExperts + 1);
  m.count = kExperts;
  const ValueId dense = m.Scattered();
  m.Masked([&](int64_t e) { return m.Column(dense, e); });
  ExpectKept(m);
  Loop twice;  // the first expert in the second's place
  const ValueId all = twice.Scattered();
  twice.Masked([&](int64_t e) { return twice.Column(all, e == 1 ? 0 : e); });
  ExpectKept(twice);
}

TEST(ExpertLoops, OtherSharesStay) {
  Loop added;  // the best are added to what was there: no zeros
  const ValueId on =
      added.Op1(Op::kScatterElements, {added.scores, added.index, added.shares}, Attrs{{"axis", int64_t{-1}}});
  added.Masked([&](int64_t e) { return added.Column(on, e); });
  ExpectKept(added);
  Loop others;  // another router's index
  const ValueId own = others.Op1(Op::kAdd, {others.index, others.I(0)});
  others.Masked([&](int64_t e) {
    const ValueId equal = others.Op1(Op::kEqual, {own, others.I(e)});
    return others.Sum(others.Op1(Op::kWhere, {equal, others.shares, others.F(0)}), -1, 1);
  });
  ExpectKept(others);
  Loop tokens;  // summed over another axis than that of the best
  tokens.Masked([&](int64_t e) {
    const ValueId equal = tokens.Op1(Op::kEqual, {tokens.index, tokens.I(e)});
    return tokens.Sum(tokens.Op1(Op::kWhere, {equal, tokens.shares, tokens.F(1)}), -1, 1);
  });
  ExpectKept(tokens);
}

TEST(ExpertLoops, ExpertsOfOtherNodesStay) {
  Loop m;
  const ValueId dense = m.Scattered();
  ValueId sum;
  for (int64_t e = 0; e < kExperts; ++e) {
    ValueId y = m.Expert(e, m.x);
    if (e == 2) y = m.Op1(Op::kRelu, {y});
    y = m.Op1(Op::kMul, {y, m.Column(dense, e)});
    sum = sum.valid() ? m.Op1(Op::kAdd, {sum, y}) : y;
  }
  m.Out(sum);
  ExpectKept(m);
  Loop normed;  // a mean of all columns is nothing that rows have each
  const ValueId all = normed.Scattered();
  ValueId total;
  for (int64_t e = 0; e < kExperts; ++e) {
    const ValueId rows = normed.Op1(Op::kReduceMean, {normed.Expert(e, normed.x), normed.Axis({1})});
    const ValueId y =
        normed.Op1(Op::kMul, {normed.Op1(Op::kAdd, {normed.Expert(e, normed.x), rows}), normed.Column(all, e)});
    total = total.valid() ? normed.Op1(Op::kAdd, {total, y}) : y;
  }
  normed.Out(total);
  ExpectKept(normed);
}

// The loops of transformers: the rows of each expert, at the places where one-hot rows name it.
struct Places : Loop {
  explicit Places(Ints perm) : Loop({Sym("s")}), token(perm[1] == 0 ? 0 : 1) { turned = Transpose(OneHot(), perm); }
  void At(int64_t e) {
    const ValueId own = Cast(Op1(Op::kGather, {turned, I(e)}, Attrs{{"axis", int64_t{0}}}), DType::kBool);
    const ValueId pairs = Transpose(Op1(Op::kNonZero, {own}), {1, 0});
    const NodeId split = g.AddNode(Op::kSplit, {pairs, Axis({1, 1})}, 2, Attrs{{"axis", int64_t{1}}});
    tokens = g.node(split).output(static_cast<size_t>(token));
    places = g.node(split).output(static_cast<size_t>(1 - token));
  }
  ValueId Flat(ValueId v) { return Op1(Op::kSqueeze, {v, Axis({1})}); }
  // As TorchScript writes it.
  void Traced(int64_t factor = kBest, bool swapped = false, int64_t columns = kIn) {
    ValueId sum = Zeros(columns == kIn ? x : Op1(Op::kMatMul, {x, W({kIn, columns})}));
    const ValueId flat = Reshape(shares, {-1, 1});
    for (int64_t e = 0; e < kExperts; ++e) {
      At(e);
      const ValueId rows = Op1(Op::kGather, {x, Flat(swapped ? places : tokens)}, Attrs{{"axis", int64_t{0}}});
      const ValueId at = Op1(Op::kAdd, {Flat(places), Op1(Op::kMul, {Flat(tokens), Axis({factor})})});
      const ValueId y = Op1(Op::kMul, {Expert(e, rows), Op1(Op::kGather, {flat, at}, Attrs{{"axis", int64_t{0}}})});
      const ValueId where = Op1(Op::kExpand, {tokens, Axis({1, kIn})});
      sum = Op1(Op::kAdd, {sum, Op1(Op::kScatterElements, {Zeros(sum), where, y}, Attrs{{"axis", int64_t{0}}})});
    }
    Out(sum);
  }
  // As dynamo writes it.
  void Exported() {
    ValueId sum = Zeros(x);
    for (int64_t e = 0; e < kExperts; ++e) {
      At(e);
      const ValueId rows = Op1(Op::kGatherND, {x, tokens}, Attrs{{"batch_dims", int64_t{0}}});
      const ValueId share =
          Op1(Op::kGatherND, {shares, Concat({tokens, places}, -1)}, Attrs{{"batch_dims", int64_t{0}}});
      const ValueId y = Op1(Op::kMul, {Expert(e, rows), Unsqueeze(share, {1})});
      sum = Op1(Op::kScatterND, {sum, tokens, y}, Attrs{{"reduction", std::string("add")}});
    }
    Out(sum);
  }
  int64_t token;
  ValueId turned, tokens, places;
};

TEST(ExpertLoops, RowsOfEachExpert) {
  for (const Ints& perm : {Ints{2, 1, 0}, Ints{2, 0, 1}}) {
    Places traced(perm);
    traced.Traced();
    ExpectChosen(traced);
    Places exported(perm);
    exported.Exported();
    ExpectChosen(exported);
  }
}

TEST(ExpertLoops, RowsOfOtherPlacesStay) {
  Places swapped({2, 1, 0});
  swapped.Traced(kBest, true);
  PassRun run;
  EXPECT_FALSE(*ExpertLoops(swapped.g, run));  // it does not run with one token
  Places further({2, 1, 0});
  further.Traced(1);
  ExpectKept(further);
  Places wider({2, 1, 0});  // a sum with columns that no expert adds to
  wider.Traced(kBest, false, kIn + 1);
  ExpectKept(wider);
}

}  // namespace
}  // namespace octavo::passes::canonical
