// The caller's own functions and data, as the library runs them. What they throw (a KeyboardInterrupt in Python) ends the work and comes back to the caller
// as it is; no other exception leaves a call. For api/ alone.
#ifndef OCTAVO_API_CALLERS_H_
#define OCTAVO_API_CALLERS_H_

#include <exception>
#include <memory>

#include "octavo/api/optimize.h"
#include "octavo/ir/closed.h"

namespace octavo::api {

// Bytes that the tensors of one call may take.
size_t MemoryFor(const ir::Graph& graph);

class Callers {
 public:
  // data: options.data where that is null.
  explicit Callers(const OptimizeOptions& options, quant::DataSource* data = nullptr);
  Callers(const Callers&) = delete;
  Callers& operator=(const Callers&) = delete;

  // The same with every function and the data watched.
  const OptimizeOptions& options() const { return options_; }

  // body() behind the wall, with memory for tensors that fits `graph`.
  template <typename F>
  std::invoke_result_t<F> Closed(std::string_view place, const ir::Graph& graph, F&& body) {
    auto result = ir::Closed(place, MemoryFor(graph), std::forward<F>(body));
    if (thrown_) std::rethrow_exception(thrown_);
    return result;
  }

  // f(), and what it throws is kept, unless it is the library's own.
  template <typename F>
  auto Watch(F&& f) {
    try {
      return std::forward<F>(f)();
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const ir::CheckError&) {
      throw;
    } catch (...) {
      thrown_ = std::current_exception();
      throw;
    }
  }

 private:
  OptimizeOptions options_;
  std::unique_ptr<quant::DataSource> data_;
  std::exception_ptr thrown_;
};

}  // namespace octavo::api

#endif  // OCTAVO_API_CALLERS_H_
