// What a history is called, and where programs keep what goes with it.
#pragma once

#include <string>

namespace diapason {

// Whether a history is named by a URI (postgresql://... or postgres://...) rather than by a path.
bool IsPostgresUri(const std::string& history);

// What messages, records and files call a history: its path, or its URI without passwords.
std::string HistoryName(const std::string& history);

// Whether there may be such a history: a file that is there, or a URI.
bool MayBeThere(const std::string& history);

// Where the file of this ending goes: beside a history that is a file ("h.db" and ".rounds": h.db.rounds), else below
// $XDG_STATE_HOME/diapason (~/.local/state/diapason), whose folders are made for the owner alone. The name is a hash of
// the URI without passwords: a changed password changes no place.
std::string StatePath(const std::string& history, const std::string& ending);

}  // namespace diapason
