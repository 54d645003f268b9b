// A host lends its threads to the models that are compiled for it.
#ifndef OCTAVO_RUNTIME_HOST_THREADS_H_
#define OCTAVO_RUNTIME_HOST_THREADS_H_

#include "octavo/runtime/threads.h"

namespace octavo::runtime {

// While it lives, what this thread compiles gets no threads of its own: every run gives its work to `host`, cut for as many threads as were asked for.
class CompileForHost {
 public:
  explicit CompileForHost(Threads::Host host);
  ~CompileForHost();
  CompileForHost(const CompileForHost&) = delete;
  CompileForHost& operator=(const CompileForHost&) = delete;
  static bool Is();  // this thread

 private:
  Threads::Host host_;
  const Threads::Host* before_;
};

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_HOST_THREADS_H_
