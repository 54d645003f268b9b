#include "octavo/integrations/onnxruntime/ep_log.h"

#include <string>
#include <utility>

#include "octavo/integrations/onnxruntime/host.h"
#include "octavo/ir/log.h"

namespace octavo::integrations::onnxruntime {

namespace {

thread_local const OrtLogger* log_of_thread = nullptr;

OrtLoggingLevel SeverityOf(ir::LogLevel level) {
  if (level == ir::LogLevel::kWarning) return ORT_LOGGING_LEVEL_WARNING;
  return level == ir::LogLevel::kInfo ? ORT_LOGGING_LEVEL_INFO : ORT_LOGGING_LEVEL_VERBOSE;
}

}  // namespace

void LogToSessions() {
  ir::SetLog(ir::LogLevel::kDebug, [](ir::LogLevel level, std::string_view text) {
    if (log_of_thread == nullptr) return;
    const std::string line = "octavo: " + std::string(text);
    (void)StatusOf(Api().Logger_LogMessage(log_of_thread, SeverityOf(level), line.c_str(), "octavo", 0, "octavo"));
  });
}

LogOfThread::LogOfThread(const OrtLogger* logger) : before_(std::exchange(log_of_thread, logger)) {}
LogOfThread::~LogOfThread() { log_of_thread = before_; }

}  // namespace octavo::integrations::onnxruntime
