// einsum: a product of two operands is a MatMul between Transposes and Reshapes.
// Before: Einsum(q, k; "bihd,bjhd->bhij")        After: MatMul(Transpose(q, b h i d), Transpose(k, b h d j))
// Before: Einsum(x, W; "bsd,dhk->bshk")          After: Reshape(MatMul(x, Reshape(W, [d, h*k])), [b,s,h,k])
// Before: Einsum(o, W; "bshk,hkd->bsd")          After: MatMul(Reshape(o, [b,s,h*k]), Reshape(W, [h*k, d]))
// Before: Einsum(q, k; "bhid,bjd->bhij")         After: MatMul(q, Unsqueeze(Transpose(k, b d j), 1))      (one k for all heads)
// Before: Einsum(p, v; "bkgqs,bskd->bqkgd")      After: Transpose(MatMul(p, Unsqueeze(Transpose(v, b k s d), 2)), b q k g d)   (grouped heads)
// Before: Einsum(q, k; "bghnd,bhsd->bghns")      After: MatMul(q, Unsqueeze(Transpose(k, b h d s), 1))    (groups that share heads)
// Before: Einsum(q, k; "rinhd,rjnhd->hnij")      After: MatMul(Reshape(Transpose(q, h n i r d), [h,n,i,r*d]), Reshape(Transpose(k, h n r d j), [h,n,r*d,j]))
// Before: Einsum(x, v; "bsd,bd->bs")             After: Squeeze(MatMul(x, Unsqueeze(v, 2)), 2)           (a vector is a matrix of one column, or of one row)
// The same products are summed; their order is that of a MatMul, so float results differ by its rounding, at most K * 2^-24 of the
// terms. An ellipsis in all three terms stands for letters of its own.
// Untouched: one or more than two operands, another ellipsis, a letter twice in a term, a letter that is summed in one operand alone.
#include <algorithm>
#include <string>
#include <utility>

#include "octavo/passes/canonical/canonical.h"
#include "octavo/passes/canonical/util.h"

namespace octavo::passes::canonical {

namespace {

struct Terms {
  std::string a, b, out;
};

std::optional<Terms> Parse(std::string text) {
  std::erase(text, ' ');
  const size_t comma = text.find(','), arrow = text.find("->");
  if (comma == std::string::npos || text.find(',', comma + 1) != std::string::npos ||
      text.find('.') != std::string::npos)
    return {};
  Terms t;
  t.a = text.substr(0, comma);
  t.b = text.substr(comma + 1, arrow == std::string::npos ? arrow : arrow - comma - 1);
  if (arrow != std::string::npos) {
    t.out = text.substr(arrow + 2);
  } else {  // every letter that occurs once, in alphabetical order
    for (char c : t.a + t.b) {
      if (std::count(t.a.begin(), t.a.end(), c) + std::count(t.b.begin(), t.b.end(), c) == 1) t.out += c;
    }
    std::sort(t.out.begin(), t.out.end());
  }
  for (const std::string* term : {&t.a, &t.b, &t.out}) {
    std::string sorted = *term;
    std::sort(sorted.begin(), sorted.end());
    if (sorted.empty() || std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) return {};
  }
  return t;
}

// "...qhd,...khd->...hqk" for operands of rank 5 as "ABqhd,ABkhd->ABhqk"; as it is where it has no ellipsis in each of its terms, for as many dims.
std::string Spelled(std::string text, size_t rank_a, size_t rank_b) {
  constexpr std::string_view kDots = "...";
  std::erase(text, ' ');
  const size_t comma = text.find(','), arrow = text.find("->");
  if (comma == std::string::npos || arrow == std::string::npos || arrow < comma) return text;
  const std::string terms[] = {text.substr(0, comma), text.substr(comma + 1, arrow - comma - 1),
                               text.substr(arrow + 2)};
  const size_t letters_a = terms[0].size() - kDots.size(), letters_b = terms[1].size() - kDots.size();
  for (const std::string& term : terms) {
    if (!term.starts_with(kDots) || term.find('.', kDots.size()) != std::string::npos) return text;
  }
  if (rank_a < letters_a || rank_a - letters_a != rank_b - letters_b) return text;
  std::string dots;
  for (char c = 'A'; c <= 'Z' && dots.size() < rank_a - letters_a; ++c) {
    if (text.find(c) == std::string::npos) dots += c;
  }
  return dots + terms[0].substr(kDots.size()) + "," + dots + terms[1].substr(kDots.size()) + "->" + dots +
         terms[2].substr(kDots.size());
}

bool Has(const std::string& term, char c) { return term.find(c) != std::string::npos; }

// Letters by their part in the product, each in the order of `out`, the summed ones in the order of b; the batch in the order
// of a where a begins with it and `out` does not, the rows behind it in a's order: probabilities stay as they are, what attention gives is transposed anyway.
struct Roles {
  std::string batch, rows, columns, summed;
  std::string lead;  // batch and rows in the order of the product
};
std::optional<Roles> RolesOf(const Terms& t) {
  Roles r;
  for (char c : t.out) {
    if (!Has(t.a, c) && !Has(t.b, c)) return {};
    (Has(t.a, c) && Has(t.b, c) ? r.batch : Has(t.a, c) ? r.rows : r.columns) += c;
  }
  for (char c : t.b) {
    if (!Has(t.out, c)) r.summed += c;
  }
  for (char c : t.a + t.b) {
    if (!Has(t.out, c) && !(Has(t.a, c) && Has(t.b, c))) return {};
  }
  if (r.summed.empty()) return {};
  if (r.rows.empty() || r.columns.empty()) return r;
  const auto begins = [&r](const std::string& term) {
    return std::is_permutation(r.batch.begin(), r.batch.end(), term.begin(), term.begin() + std::ssize(r.batch));
  };
  if (begins(t.a) && !begins(t.out)) r.batch = t.a.substr(0, r.batch.size());
  if (!r.batch.empty() && begins(t.a)) std::ranges::sort(r.rows, {}, [&t](char c) { return t.a.find(c); });
  r.lead = r.batch + r.rows;
  // Rows among the batch, where a and the result have them in one order: b has these once.
  const std::string in_front = t.out.substr(0, r.lead.size());
  std::string of_a = t.a;
  std::erase_if(of_a, [&](char c) { return !Has(r.lead, c); });
  if (!r.batch.empty() && !begins(t.a) && of_a == in_front && Has(r.rows, in_front.back())) r.lead = in_front;
  return r;
}

ValueId Ordered(Rewriter& rw, ValueId v, const std::string& from, const std::string& to) {
  Ints perm;
  for (char c : to) perm.push_back(static_cast<int64_t>(from.find(c)));
  return IsIdentityPerm(perm) ? v : MakeTranspose(rw, v, perm);
}

Dim Product(const SymShape& s, size_t from, size_t to) {
  Dim p = 1;
  for (size_t i = from; i < to; ++i) p = p * s[i];
  return p;
}

// The shape with its dims from `first` on merged into one.
SymShape MergedFrom(const SymShape& s, size_t first) {
  SymShape m(s.begin(), s.begin() + static_cast<std::ptrdiff_t>(first));
  m.push_back(Product(s, first, s.size()));
  return m;
}

bool EinsumNode(Rewriter& rw, NodeId id);

// A vector instead of rows or columns gets one of them, by a letter that no term has.
bool WithOne(Rewriter& rw, NodeId id, Terms t, const Roles& roles) {
  const Graph& g = rw.graph();
  std::string spare;
  for (char c = 'a'; c <= 'z'; ++c) {
    if (!Has(t.a + t.b, c)) spare += c;
  }
  if (spare.size() < 2) return false;
  const Node n = g.node(id);
  const Type was = g.value(n.output()).type;
  Type type = was;
  Ints ones;
  const auto widen = [&](ValueId v, std::string& term, char letter) {
    SymShape wide = *ShapeOf(g, v);
    wide.push_back(Dim(1)), type.shape->push_back(Dim(1));
    ones.push_back(std::ssize(t.out));
    const ValueId axis = MakeInts(rw, {std::ssize(term)});
    term += letter, t.out += letter;
    return Make(rw, Op::kUnsqueeze, {v, axis}, {}, Type{DTypeOf(g, v), std::move(wide)});
  };
  const ValueId x = roles.rows.empty() ? widen(n.input(0), t.a, spare[0]) : n.input(0);
  const ValueId w = roles.columns.empty() ? widen(n.input(1), t.b, spare[1]) : n.input(1);
  const ValueId y = Make(rw, Op::kEinsum, {x, w}, {{"equation", t.a + "," + t.b + "->" + t.out}}, type);
  const ValueId out = Make(rw, Op::kSqueeze, {y, MakeInts(rw, ones)}, {}, was);
  const NodeId made = g.value(y).producer;
  rw.At(made, {id});  // what is made of it stands before the Squeeze
  EinsumNode(rw, made);
  rw.At(id, {id});
  ReplaceNode(rw, id, out);
  return true;
}

bool EinsumNode(Rewriter& rw, NodeId id) {
  const Graph& g = rw.graph();
  const Node& n = g.node(id);
  if (n.op != Op::kEinsum || n.inputs.size() != 2) return false;
  const SymShape *a = ShapeOf(g, n.input(0)), *b = ShapeOf(g, n.input(1)), *out = ShapeOf(g, n.output());
  if (a == nullptr || b == nullptr || out == nullptr) return false;
  const auto terms = Parse(Spelled(n.attrs.Str("equation", ""), a->size(), b->size()));
  const auto roles = terms ? RolesOf(*terms) : std::nullopt;
  if (!roles) return false;
  if (a->size() != terms->a.size() || b->size() != terms->b.size() || out->size() != terms->out.size()) return false;
  const auto dims = [&](const std::string& letters) {
    SymShape s;
    for (char c : letters) {
      s.push_back(Has(terms->out, c) ? (*out)[terms->out.find(c)] : (*b)[terms->b.find(c)]);
    }
    return s;
  };
  // Merged dims must be numbers: then every Reshape has a constant target.
  for (const std::string* letters : {&roles->columns, &roles->summed}) {
    for (const Dim& d : dims(*letters)) {
      if (letters->size() > 1 && !d.is_number()) return false;
    }
  }
  for (const char c : roles->summed) {  // ONNX lets a 1 broadcast; a MatMul does not
    if (!ProvablyEqual((*a)[terms->a.find(c)], (*b)[terms->b.find(c)])) return false;
  }
  if (roles->rows.empty() || roles->columns.empty()) return WithOne(rw, id, *terms, *roles);
  const DType dtype = DTypeOf(g, n.output());
  const std::string left = roles->lead + roles->summed, right = roles->batch + roles->summed + roles->columns;
  const std::string made = roles->lead + roles->columns;
  const SymShape wide = dims(made);
  ValueId x = Ordered(rw, n.input(0), terms->a, left), w = Ordered(rw, n.input(1), terms->b, right);
  const size_t lead = roles->lead.size();
  if (roles->summed.size() > 1) x = MakeReshape(rw, x, MergedFrom(*ShapeOf(g, x), lead));
  if (roles->summed.size() > 1 || roles->columns.size() > 1) {
    SymShape s = *ShapeOf(g, w);
    const size_t summed = roles->batch.size(), columns = summed + roles->summed.size();
    const Dim k = Product(s, summed, columns), merged = Product(s, columns, s.size());
    s.resize(summed);
    s.insert(s.end(), {k, merged});
    w = MakeReshape(rw, w, s);
  }
  if (!roles->batch.empty() && roles->rows.size() > 1) {  // all rows but the last are batches that b has once
    SymShape once = *ShapeOf(g, w);
    Ints axes;
    for (size_t at = 0; at + 1 < lead; ++at) {
      if (Has(roles->batch, roles->lead[at])) continue;
      once.insert(once.begin() + static_cast<std::ptrdiff_t>(at), Dim(1));
      axes.push_back(static_cast<int64_t>(at));
    }
    w = Make(rw, Op::kUnsqueeze, {w, MakeInts(rw, std::move(axes))}, {}, Type{dtype, std::move(once)});
  }
  SymShape flat = MergedFrom(wide, lead);
  ValueId y = Make(rw, Op::kMatMul, {x, w}, {}, Type{dtype, flat});
  if (roles->columns.size() > 1) y = MakeReshape(rw, y, wide);
  ReplaceNode(rw, id, Ordered(rw, y, made, terms->out));
  return true;
}

}  // namespace

Result<bool> Einsum(Graph& graph, PassRun& run) {
  bool any = false;
  for (NodeId id : graph.NodesInOrder()) any = any || graph.node(id).op == Op::kEinsum;
  if (!any) return false;
  OCTAVO_TRY([[maybe_unused]] const ir::Inference inference, ir::Inference::Run(graph));
  Rewriter rw(graph, "einsum");
  for (NodeId id : graph.NodesInOrder()) {
    if (!graph.IsAlive(id)) continue;
    rw.At(id, {id});
    EinsumNode(rw, id);
  }
  if (rw.changed()) run.log.emplace_back("einsum: products of two operands are MatMuls");
  return rw.changed();
}

}  // namespace octavo::passes::canonical
