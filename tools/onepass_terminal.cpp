// See onepass_terminal.h.
#include "tools/onepass_terminal.h"

#include <fmt/format.h>

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "runtime/os.h"

namespace onepass::command {

namespace {

bool is_terminal(std::FILE* stream) {
  const std::optional<std::string> kind = os::environment("TERM");
  return ::isatty(::fileno(stream)) == 1 && kind && *kind != "dumb";
}

bool has_colours(std::FILE* stream) { return is_terminal(stream) && os::environment("NO_COLOR").value_or("").empty(); }

constexpr auto kPatience = std::chrono::seconds(1);
constexpr auto kStep = std::chrono::milliseconds(200);

}  // namespace

std::string styled(std::FILE* stream, Style style, std::string_view text) {
  if (!has_colours(stream)) return std::string(text);
  const char* const code = style == Style::Bold ? "1" : style == Style::Good ? "32" : style == Style::Warning ? "33" : "1;31";
  return fmt::format("\x1b[{}m{}\x1b[0m", code, text);
}

struct Progress::Body {
  std::mutex mutex;
  std::condition_variable changed;
  std::string doing, prefix;
  bool ended = false;
  std::thread thread;

  void show() {
    const auto start = std::chrono::steady_clock::now();
    bool shown = false;
    std::unique_lock lock(mutex);
    for (auto next = start + kPatience; !changed.wait_until(lock, next, [&] { return ended; }); next += kStep) {
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      fmt::print(stderr, "\r\x1b[K{}{} … {:.0f} s", prefix, doing, seconds);
      std::fflush(stderr);
      shown = true;
    }
    if (shown) {
      std::fputs("\r\x1b[K", stderr);
      std::fflush(stderr);
    }
  }
};

Progress::Progress(std::string doing) {
  if (!is_terminal(stderr)) return;
  body_ = std::make_unique<Body>();
  body_->doing = std::move(doing);
  body_->thread = std::thread([body = body_.get()] { body->show(); });
}

Progress::~Progress() {
  if (!body_) return;
  {
    const std::lock_guard lock(body_->mutex);
    body_->ended = true;
  }
  body_->changed.notify_all();
  body_->thread.join();
}

void Progress::say(std::string doing) {
  if (!body_) return;
  const std::lock_guard lock(body_->mutex);
  body_->doing = std::move(doing);
}

void Progress::prefix(std::string text) {
  if (!body_) return;
  const std::lock_guard lock(body_->mutex);
  body_->prefix = std::move(text);
}

}  // namespace onepass::command
