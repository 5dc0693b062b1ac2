#include "tests/db/postgres_server.h"

#include <libpq-fe.h>
#include <pwd.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "db/postgres.h"

namespace diapason {
namespace {

// Debian keeps them out of PATH.
std::string FindPrograms() {
  std::string folders;
  std::error_code none;
  for (const auto& version : std::filesystem::directory_iterator("/usr/lib/postgresql", none))
    folders += version.path().string() + "/bin:";
  if (const char* path = std::getenv("PATH"); path != nullptr) folders += path;
  std::istringstream in(folders);
  for (std::string folder; std::getline(in, folder, ':');)
    if (access((folder + "/initdb").c_str(), X_OK) == 0 && access((folder + "/postgres").c_str(), X_OK) == 0)
      return folder;
  std::fprintf(stderr, "PostgreSQL's initdb and postgres are not installed; deploy/setup.sh installs them\n");
  std::abort();
}

// The server refuses to run as root.
uid_t ServerUser() {
  if (geteuid() != 0) return geteuid();
  for (const char* name : {"postgres", "nobody"})
    if (const passwd* entry = getpwnam(name); entry != nullptr) return entry->pw_uid;
  return 65534;
}

}  // namespace

PostgresServer& PostgresServer::Get() {
  static PostgresServer server;
  return server;
}

PostgresServer::PostgresServer() : programs_(FindPrograms()), owner_(getpid()) {
  const bool in_memory = access("/dev/shm", W_OK | X_OK) == 0;
  std::string pattern = std::string(in_memory ? "/dev/shm" : "/tmp") + "/diapason-pg-XXXXXX";
  folder_ = mkdtemp(pattern.data());
  if (chown(folder_.c_str(), ServerUser(), static_cast<gid_t>(-1)) != 0) std::abort();
  std::filesystem::permissions(folder_, std::filesystem::perms::all);
  int status = 1;
  waitpid(Spawn("initdb", "-U diapason --auth=trust --no-sync --no-locale -E UTF8 --no-instructions"), &status, 0);
  if (status != 0) std::fprintf(stderr, "initdb failed; see its messages above\n"), std::abort();
  {
    std::ofstream rules(folder_ + "/data/pg_hba.conf", std::ios::trunc);
    rules << "local all guarded scram-sha-256\nlocal all all trust\n";
  }
  Start();
  Execute("CREATE ROLE reader LOGIN; CREATE ROLE guarded LOGIN PASSWORD 'right';");
}

PostgresServer::~PostgresServer() {
  if (getpid() != owner_) return;
  Stop();
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void PostgresServer::Stop() {
  kill(server_, SIGINT);  // which waits for its processes
  waitpid(server_, nullptr, 0);
}

pid_t PostgresServer::Spawn(const std::string& program, const std::string& arguments) {
  const std::string command = absl::StrCat("cd ", folder_, " && exec ", programs_, "/", program, " -D ", folder_,
                                           "/data ", arguments, " > ", folder_, "/", program, ".log 2>&1");
  const pid_t child = fork();
  if (child != 0) return child;
  const uid_t user = ServerUser();
  if (geteuid() == 0 && (setgid(getpwuid(user) == nullptr ? 65534 : getpwuid(user)->pw_gid) != 0 || setuid(user) != 0))
    _exit(1);
  prctl(PR_SET_PDEATHSIG, SIGQUIT);
  execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
  _exit(127);
}

void PostgresServer::Start() {
  server_ = Spawn("postgres", absl::StrCat("-c fsync=off -c listen_addresses= -c unix_socket_directories=", folder_,
                                           " -c max_connections=80 -c shared_buffers=16MB"));
  const std::string uri = absl::StrCat("postgresql://diapason@/postgres?host=", folder_);
  for (int i = 0; i < 600 && PQping(uri.c_str()) != PQPING_OK; ++i) usleep(20000);
  if (PQping(uri.c_str()) != PQPING_OK)
    std::fprintf(stderr, "the server did not start; see %s/postgres.log\n", folder_.c_str()), std::abort();
}

void PostgresServer::Execute(const std::string& sql) {
  PGconn* connection = PQconnectdb(absl::StrCat("postgresql://diapason@/postgres?host=", folder_).c_str());
  PGresult* result = PQexec(connection, absl::StrCat("SET client_min_messages = error;", sql).c_str());
  const ExecStatusType status = PQresultStatus(result);
  if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
    std::fprintf(stderr, "%s: %s", sql.c_str(), PQerrorMessage(connection)), std::abort();
  PQclear(result);
  PQfinish(connection);
}

std::string PostgresServer::Uri(const std::string& schema, const std::string& user) {
  Execute(absl::StrCat("CREATE SCHEMA IF NOT EXISTS \"", schema, "\"; GRANT USAGE ON SCHEMA \"", schema,
                       "\" TO reader, guarded"));
  return PostgresName(
      absl::StrCat("postgresql://", user, "@/postgres?host=", folder_, "&options=-csearch_path%3D", schema));
}

}  // namespace diapason
