// A PostgreSQL server for tests: Debian's, on a Unix socket in a scratch folder, started when it is first asked for and
// stopped at the end of the program, however that ends.
#pragma once

#include <sys/types.h>

#include <string>

namespace diapason {

class PostgresServer {
 public:
  // The one of this program. Ends the program with a message where the server's programs are not installed.
  static PostgresServer& Get();

  // Of a database of `user`, whose search_path names this schema alone; it is made where there is none.
  std::string Uri(const std::string& schema, const std::string& user = "diapason");
  // Runs statements as the owner of all.
  void Execute(const std::string& sql);
  // As when its host is restarted: connections break, and until Start there is nobody.
  void Stop();
  void Start();
  // The folder with its socket.
  const std::string& folder() const { return folder_; }

 private:
  PostgresServer();
  ~PostgresServer();
  pid_t Spawn(const std::string& program, const std::string& arguments);
  const std::string programs_;
  std::string folder_;
  pid_t owner_ = 0, server_ = 0;
};

}  // namespace diapason
