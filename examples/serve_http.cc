// A small HTTP server over a package.
//
//   ./serve_http PACKAGE [HOST:PORT [CONTEXTS]]      (default: 127.0.0.1:8080, 2; port 0: any free one)
//   curl http://127.0.0.1:8080/model
//   curl --data-binary @inputs.bin http://127.0.0.1:8080/run --output outputs.bin
//
// GET /model names the inputs and outputs. POST /run takes the bytes of all inputs one after the other, row-major and
// in that order, and answers with those of the outputs. ?batch=3 gives the size of a symbolic dimension. Ctrl-C or
// SIGTERM: requests that are running are answered first.
#include <httplib.h>
#include <pthread.h>
#include <signal.h>

#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "diapason/runtime.hpp"

namespace {

using diapason::runtime::Buffer;
using diapason::runtime::Context;
using diapason::runtime::Error;
using diapason::runtime::Package;
using diapason::runtime::Port;

// The contexts of a package, each lent to one request at a time.
class Contexts {
 public:
  Contexts(const Package& package, int count) {
    // On cpu the contexts share the cores; elsewhere the number has no meaning.
    for (int i = 0; i < count; ++i) free_.push_back(std::make_unique<Context>(package, /*threads=*/1));
  }
  std::unique_ptr<Context> Take() {
    std::unique_lock<std::mutex> lock(mutex_);
    returned_.wait(lock, [this] { return !free_.empty(); });
    std::unique_ptr<Context> context = std::move(free_.back());
    free_.pop_back();
    return context;
  }
  void Return(std::unique_ptr<Context> context) {
    const std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back(std::move(context));
    returned_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable returned_;
  std::vector<std::unique_ptr<Context>> free_;
};

class Lent {
 public:
  explicit Lent(Contexts& contexts) : contexts_(contexts), context_(contexts.Take()) {}
  ~Lent() { contexts_.Return(std::move(context_)); }
  Context& operator*() { return *context_; }

 private:
  Contexts& contexts_;
  std::unique_ptr<Context> context_;
};

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    char escaped[8];
    std::snprintf(escaped, sizeof(escaped), "\\u%04x", static_cast<unsigned char>(c));
    quoted += static_cast<unsigned char>(c) < 0x20 || c == '"' || c == '\\' ? escaped : std::string(1, c);
  }
  return quoted + "\"";
}

const char* NameOf(int32_t dtype) {
  switch (dtype) {
    case DIAPASON_FLOAT32: return "float32";
    case DIAPASON_FLOAT16: return "float16";
    case DIAPASON_FLOAT64: return "float64";
    case DIAPASON_BFLOAT16: return "bfloat16";
    case DIAPASON_INT32: return "int32";
    case DIAPASON_INT64: return "int64";
    case DIAPASON_INT8: return "int8";
    case DIAPASON_UINT8: return "uint8";
    case DIAPASON_BOOL: return "bool";
  }
  return "unknown";
}

std::string Json(const std::vector<Port>& ports) {
  std::string text;
  for (const Port& port : ports) {
    text += (text.empty() ? "" : ", ") + std::string("{\"name\": ") + Quoted(port.name) +
            ", \"dtype\": " + Quoted(NameOf(port.dtype)) + ", \"shape\": [";
    for (size_t d = 0; d < port.shape.size(); ++d) {
      const std::string extent = port.shape[d] >= 0        ? std::to_string(port.shape[d])
                                 : port.symbols[d].empty() ? "null"
                                                           : Quoted(port.symbols[d]);
      text += (d > 0 ? ", " : "") + extent;
    }
    text += "]}";
  }
  return "[" + text + "]";
}

std::string Model(const Package& package) {
  return "{\"network\": " + Quoted(package.network()) + ", \"target\": " + Quoted(package.target()) +
         ",\n \"inputs\": " + Json(package.inputs()) + ",\n \"outputs\": " + Json(package.outputs()) + "}\n";
}

std::string Run(const Package& package, Context& context, const httplib::Request& request) {
  for (const std::string& symbol : package.symbols()) {  // contexts remember those of the request before
    if (!request.has_param(symbol))
      throw std::invalid_argument("the size of '" + symbol + "' is missing: POST /run?" + symbol + "=1");
    context.SetSize(symbol, std::strtoll(request.get_param_value(symbol).c_str(), nullptr, 10));
  }
  std::vector<Buffer> inputs, outputs;
  size_t taken = 0, given = 0;
  char* const body = const_cast<char*>(request.body.data());
  for (size_t i = 0; i < package.inputs().size(); ++i) {
    const size_t bytes = context.Input(static_cast<int32_t>(i)).bytes;
    inputs.emplace_back(body + taken, bytes);
    taken += bytes;
  }
  if (taken != request.body.size())
    throw std::invalid_argument("the inputs are " + std::to_string(taken) + " bytes, and the request has " +
                                std::to_string(request.body.size()) + "; GET /model shows types and shapes");
  for (size_t i = 0; i < package.outputs().size(); ++i) given += context.Output(static_cast<int32_t>(i)).bytes;
  std::string answer(given, 0);
  given = 0;
  for (size_t i = 0; i < package.outputs().size(); ++i) {
    const size_t bytes = context.Output(static_cast<int32_t>(i)).bytes;
    outputs.emplace_back(answer.data() + given, bytes);
    given += bytes;
  }
  context.Run(inputs, outputs);
  return answer;
}

void Answer(const Package& package, Contexts& contexts, const httplib::Request& request, httplib::Response& response) {
  const auto fail = [&](int status, const std::exception& error) {
    response.status = status;
    response.set_content(std::string(error.what()) + "\n", "text/plain");
  };
  try {
    Lent context(contexts);
    response.set_content(Run(package, *context, request), "application/octet-stream");
  } catch (const std::invalid_argument& error) {
    fail(400, error);
  } catch (const Error& error) {
    fail(error.status() == DIAPASON_INVALID_ARGUMENT ? 400 : 500, error);
  }
}

// The signals that stop the server, blocked in this thread and in those that it starts: one of them waits for them.
sigset_t BlockStops() {
  sigset_t stops;
  sigemptyset(&stops);
  sigaddset(&stops, SIGINT);
  sigaddset(&stops, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &stops, nullptr);
  return stops;
}

int Serve(const Package& package, const std::string& host, int port, int count, const sigset_t& stops) {
  Contexts contexts(package, count);
  httplib::Server server;
  server.new_task_queue = [count] { return new httplib::ThreadPool(static_cast<size_t>(count) + 2); };
  server.set_payload_max_length(size_t{1} << 30);
  server.Get("/model", [&](const httplib::Request&, httplib::Response& response) {
    response.set_content(Model(package), "application/json");
  });
  server.Post("/run", [&](const httplib::Request& request, httplib::Response& response) {
    Answer(package, contexts, request, response);
  });
  if (port == 0)
    port = server.bind_to_any_port(host);
  else if (!server.bind_to_port(host, port))
    port = -1;
  if (port < 0) {
    std::fprintf(stderr, "serve_http: cannot listen on %s; give another HOST:PORT\n", host.c_str());
    return 1;
  }
  std::printf("%s for %s listens on http://%s:%d\n", package.network().c_str(), package.target().c_str(), host.c_str(),
              port);
  std::fflush(stdout);
  std::thread([&server, stops] {
    int signal = 0;
    sigwait(&stops, &signal);
    server.stop();
  }).detach();
  return server.listen_after_bind() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string address = argc > 2 ? argv[2] : "127.0.0.1:8080";
  const size_t colon = address.rfind(':');
  const int count = argc > 3 ? std::atoi(argv[3]) : 2;
  if (argc < 2 || colon == std::string::npos || count < 1) {
    std::fprintf(stderr, "usage: serve_http PACKAGE [HOST:PORT [CONTEXTS]]\n");
    return 2;
  }
  const sigset_t stops = BlockStops();  // before the package starts threads
  try {
    const Package package(argv[1]);
    return Serve(package, address.substr(0, colon), std::atoi(address.c_str() + colon + 1), count, stops);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "serve_http: %s\n", error.what());
    return 1;
  }
}
