#include "cli/interrupt.h"

#include <unistd.h>

#include <csignal>

#include "base/check.h"

namespace diapason {
namespace {

constexpr int kExitInterrupted = 130;

std::atomic<int> g_signals{0};
std::atomic<std::atomic<bool>*> g_stop{nullptr};
std::atomic<bool> g_once{false};  // the second signal does what it did before
struct sigaction g_old_int, g_old_term;

static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free,
              "used by a signal handler");

void Restore() {
  sigaction(SIGINT, &g_old_int, nullptr);
  sigaction(SIGTERM, &g_old_term, nullptr);
}

void OnSignal(int) {
  if (g_signals.fetch_add(1) == 0) {
    if (g_once) Restore();
    g_stop.load()->store(true);
    return;
  }
  const char text[] = "\nerror: stopped at once by a second Ctrl-C; what was measured until then is kept\n";
  (void)!write(STDERR_FILENO, text, sizeof text - 1);
  _exit(kExitInterrupted);
}

}  // namespace

InterruptGuard::InterruptGuard(std::atomic<bool>* stop, SecondSignal second) {
  DIAPASON_CHECK_MSG(g_stop.exchange(stop) == nullptr, "one guard at a time");
  g_signals = 0;
  g_once = second == SecondSignal::kAsBefore;
  sigaction(SIGINT, nullptr, &g_old_int);  // both before the handler, which may restore them
  sigaction(SIGTERM, nullptr, &g_old_term);
  struct sigaction action {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

InterruptGuard::~InterruptGuard() {
  Restore();
  g_stop = nullptr;
}

bool InterruptGuard::requested() const { return g_signals.load() > 0; }

}  // namespace diapason
