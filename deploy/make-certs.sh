#!/usr/bin/env bash
# Makes what a fleet needs to know its own: an authority, a certificate for each peer, and a token for each role.
#
#   deploy/make-certs.sh DIR [--days N] [--host NAME_OR_IP]... [PEER[:ROLE]]...
#
# DIR/ca.crt, ca.key           the authority; used again when it is there (keep ca.key off the fleet)
# DIR/PEER.crt, PEER.key       for each PEER (default: tracker service worker client), made anew
# DIR/tokens                   for --tokens of those that listen: reader, submitter, worker and admin; kept when there
# DIR/ROLE.token               for --token-file of those that connect
#
# A certificate has a role, as the URI urn:diapason:role:ROLE among its alternative names: tracker, service, worker or client.
# A peer of another name says which: alice:client. Those of trackers and services are for servers and clients, and good for
# localhost, 127.0.0.1, ::1, this host's name, PEER and every --host; those of workers and clients are for clients alone.
#
# Good enough for tests and small fleets; who has an authority already uses that one.
set -euo pipefail

die() {
  echo "make-certs.sh: $1" >&2
  exit 1
}

(($# >= 1)) && [[ $1 != -* ]] || die "give the folder to make, for example: deploy/make-certs.sh certs"
command -v openssl >/dev/null || die "openssl is missing; on Debian: apt-get install openssl"
dir=$1
shift
days=825
hosts=()
peers=()
while (($# > 0)); do
  case $1 in
    --days) days=${2:?--days needs a number}; shift 2 ;;
    --host) hosts+=("${2:?--host needs a name or an address}"); shift 2 ;;
    -*) die "$1 is not an option; --days and --host are" ;;
    *) peers+=("$1"); shift ;;
  esac
done
((${#peers[@]} > 0)) || peers=(tracker service worker client)
for given in "${peers[@]}"; do
  case ${given#*:} in
    tracker | service | worker | client) ;;
    *) die "'$given' has no role; write ${given%%:*}:tracker, ${given%%:*}:service, ${given%%:*}:worker or ${given%%:*}:client" ;;
  esac
done
umask 077
mkdir -p "$dir"

quietly() {
  local said
  said=$("$@" 2>&1) || die "$(printf '%s\n' "$said" | tail -n 1)"
}

if [[ ! -f $dir/ca.key ]]; then
  quietly openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj "/CN=Diapason fleet" \
    -addext "basicConstraints=critical,CA:TRUE" -addext "keyUsage=critical,keyCertSign,cRLSign" \
    -keyout "$dir/ca.key" -out "$dir/ca.crt"
fi

names="DNS:localhost,IP:127.0.0.1,IP:::1,DNS:$(uname -n)"
for host in ${hosts[@]+"${hosts[@]}"}; do
  if [[ $host =~ ^[0-9.]+$ || $host == *:* ]]; then names+=",IP:$host"; else names+=",DNS:$host"; fi
done

for given in "${peers[@]}"; do
  peer=${given%%:*}
  role=${given#*:}
  case $role in
    tracker | service) extensions="extendedKeyUsage=serverAuth,clientAuth\nsubjectAltName=$names,DNS:$peer" ;;
    *) extensions="extendedKeyUsage=clientAuth\nsubjectAltName=DNS:$peer" ;;
  esac
  work=$(mktemp -d "$dir/.making.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  printf 'basicConstraints=CA:FALSE\nkeyUsage=digitalSignature\n%b,URI:urn:diapason:role:%s\n' "$extensions" "$role" \
    >"$work/extensions"
  quietly openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$peer" \
    -keyout "$work/key" -out "$work/csr"
  quietly openssl x509 -req -in "$work/csr" -CA "$dir/ca.crt" -CAkey "$dir/ca.key" -days "$days" \
    -extfile "$work/extensions" -set_serial "0x$(openssl rand -hex 16)" -out "$work/crt"
  # Processes that run read both again: they are replaced together.
  mv "$work/key" "$dir/$peer.key"
  mv "$work/crt" "$dir/$peer.crt"
  rm -rf "$work"
done

if [[ ! -f $dir/tokens ]]; then
  {
    echo "# role token name; read again when this file changes"
    for role in reader submitter worker admin; do
      token=$(openssl rand -hex 24)
      echo "$role $token $role"
      echo "$token" >"$dir/$role.token"
    done
  } >"$dir/tokens"
fi
chmod 600 "$dir"/*
echo "made $dir: $(printf '%s ' "${peers[@]%%:*}")(certificates), $dir/tokens"
