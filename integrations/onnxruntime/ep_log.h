// What octavo tells (ir/log.h) stands in the log of the session that it is about.
#ifndef OCTAVO_INTEGRATIONS_ONNXRUNTIME_EP_LOG_H_
#define OCTAVO_INTEGRATIONS_ONNXRUNTIME_EP_LOG_H_

#include <onnxruntime_c_api.h>

namespace octavo::integrations::onnxruntime {

// Once, before a session is made. ONNX Runtime leaves out what a session's severity does not ask for: info is its level 1, debug its level 0.
void LogToSessions();

// While it lives, this thread works for the session with this log; null: for one without.
class LogOfThread {
 public:
  explicit LogOfThread(const OrtLogger* logger);
  ~LogOfThread();
  LogOfThread(const LogOfThread&) = delete;
  LogOfThread& operator=(const LogOfThread&) = delete;

 private:
  const OrtLogger* before_;
};

}  // namespace octavo::integrations::onnxruntime

#endif  // OCTAVO_INTEGRATIONS_ONNXRUNTIME_EP_LOG_H_
