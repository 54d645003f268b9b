#include "octavo/ir/whole_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <system_error>
#include <utility>

#include "octavo/ir/closed.h"
#include "octavo/ir/names.h"

namespace octavo::ir {

namespace fs = std::filesystem;

namespace {

struct Descriptor {
  explicit Descriptor(int number) : fd(number) {}
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  const int fd;
};

std::string Reason(int error) { return std::generic_category().message(error); }

// While it stands, a write of this thread that the system answers with a signal only fails.
class NoSignals {
 public:
  NoSignals() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGXFSZ);
    sigaddset(&signals_, SIGPIPE);
    sigpending(&pending_);
    pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  }
  ~NoSignals() {
    const int error = errno;
    sigset_t ours = signals_;
    for (const int signal : {SIGXFSZ, SIGPIPE}) {
      if (sigismember(&pending_, signal) == 1) sigdelset(&ours, signal);
    }
    const timespec now = {};
    while (sigtimedwait(&ours, nullptr, &now) > 0) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;

 private:
  sigset_t signals_, pending_, before_;
};

// Whether nothing came out of a pipe for five seconds, which is opened without waiting; false for what is none.
bool IsSilent(int fd) {
  struct stat info = {};
  if (fstat(fd, &info) != 0 || !S_ISFIFO(info.st_mode)) return false;
  pollfd here = {.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&here, 1, 5000) == 0;
}

// Where a file without a name can be reached to give it one.
std::string ByDescriptor(int fd) { return "/proc/self/fd/" + std::to_string(fd); }

int OpenNameless(const fs::path& folder) {
#ifdef O_TMPFILE
  const int fd = open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
  if (fd < 0 || access(ByDescriptor(fd).c_str(), F_OK) == 0) return fd;
  close(fd);
#endif
  return -1;
}

}  // namespace

Result<std::string> ReadWholeFile(const fs::path& path, const ReadLimits& limits) {
  const std::string name = Quoted(path.string());
  return Closed(name, [&]() -> Result<std::string> {
    constexpr size_t kMostOfAStream = 1'000'000'000;  // a device may have no end
    std::error_code ec;
    if (fs::is_directory(path, ec)) return Fail("cannot read {}: it is a folder, a file is needed", name);
    const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (file.fd < 0) return Fail("cannot read {}: {}", name, Reason(errno));
    const auto size = fs::file_size(path, ec);
    const bool stream = static_cast<bool>(ec);
    if (!stream && size > limits.most)
      return Fail("cannot read {}: it has {} bytes, more than {}", name, size, limits.most);
    bool silent = stream && IsSilent(file.fd);
    std::string bytes;
    const std::string_view begins = limits.begins;
    char chunk[1 << 16];
    for (;;) {
      const ssize_t n = read(file.fd, chunk, sizeof(chunk));
      if (n == 0 && silent) return Fail("cannot read {}: it is a pipe, and nobody writes to it", name);
      silent = false;
      if (n < 0 && errno == EAGAIN) {  // somebody does, and may take the time
        fcntl(file.fd, F_SETFL, 0);
        continue;
      }
      if (n < 0) return Fail("cannot read {}: {}", name, Reason(errno));
      if (n == 0) break;
      bytes.append(chunk, static_cast<size_t>(n));
      if (bytes.size() >= begins.size() && !bytes.starts_with(begins)) break;
      if (bytes.size() > std::min(limits.most, stream ? kMostOfAStream : SIZE_MAX))
        return Fail("cannot read {}: it has no end", name);
      if (!stream && bytes.capacity() < size) bytes.reserve(size);
    }
    return bytes;
  });
}

Result<NewFile> NewFile::Create(const fs::path& wish) {
  NewFile file;
  file.path_ = wish;
  std::error_code ec;
  if (fs::is_symlink(wish, ec)) {
    if (auto behind = fs::weakly_canonical(wish, ec); !ec) file.path_ = std::move(behind);
  }
  const auto status = fs::status(file.path_, ec);
  if (file.path_.filename().empty() || fs::is_directory(status))
    return Fail("cannot write {}: it is a folder; name a file", Quoted(wish.string()));
  file.through_ = fs::exists(status) && !fs::is_regular_file(status);
  if (file.through_) {
    file.fd_ = open(file.path_.c_str(), O_WRONLY | O_CLOEXEC);
    if (file.fd_ < 0) return file.Problem(errno);
    return file;
  }
  const fs::path folder = file.path_.has_parent_path() ? file.path_.parent_path() : fs::path(".");
  if (!fs::is_directory(folder, ec)) {
    return Fail("cannot write {}: the folder {} does not exist", Quoted(wish.string()), Quoted(folder.string()));
  }
  file.fd_ = OpenNameless(folder);
  if (file.fd_ < 0) OCTAVO_TRY_STATUS(file.OpenNamed());
  // Who may read the file that it takes the place of may read it, and nobody else.
  if (fs::exists(status)) fchmod(file.fd_, static_cast<mode_t>(status.permissions() & fs::perms::all));
  return file;
}

NewFile::NewFile(NewFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      through_(other.through_),
      fd_(std::exchange(other.fd_, -1)) {}

NewFile::~NewFile() {
  if (fd_ >= 0) close(fd_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

std::unexpected<Error> NewFile::Problem(int error) const {
  return Fail("cannot write {}: {}", Quoted(path_.string()), Reason(error));
}

// Beside the target: a rename works within one file system only.
Status NewFile::OpenNamed() {
  for (int i = 0; i < 100; ++i) {
    fs::path name = path_;
    name += "." + std::to_string(getpid()) + "." + std::to_string(i) + ".tmp";
    const bool nameless = fd_ >= 0;
    const int done = nameless ? linkat(AT_FDCWD, ByDescriptor(fd_).c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW)
                              : open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (done < 0 && errno == EEXIST) continue;
    if (done < 0) return Problem(errno);
    if (!nameless) fd_ = done;
    temporary_ = std::move(name);
    return {};
  }
  return Problem(EEXIST);
}

Status NewFile::Write(std::string_view bytes) {
  const NoSignals quiet;
  while (!bytes.empty()) {
    const ssize_t n = write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Problem(n == 0 ? ENOSPC : errno);
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return {};
}

Status NewFile::WriteAt(size_t offset, std::string_view bytes) {
  if (lseek(fd_, static_cast<off_t>(offset), SEEK_SET) < 0) return Problem(errno);
  return Write(bytes);
}

Status NewFile::Commit() {
  if (!through_ && temporary_.empty()) OCTAVO_TRY_STATUS(OpenNamed());
  const int fd = std::exchange(fd_, -1);
  if (close(fd) != 0) return Problem(errno);
  if (through_) return {};
  if (rename(temporary_.c_str(), path_.c_str()) != 0) return Problem(errno);
  temporary_.clear();
  return {};
}

Status WriteWholeFile(const fs::path& wish, std::string_view bytes) {
  return Closed("writing a file", [&]() -> Status {
    OCTAVO_TRY(NewFile file, NewFile::Create(wish));
    OCTAVO_TRY_STATUS(file.Write(bytes));
    return file.Commit();
  });
}

}  // namespace octavo::ir
