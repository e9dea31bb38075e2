// How the processes of a `tcp` run find each other. Rank 0 listens; every other rank connects, says
// hello, and is welcomed or turned away with the reason.
//
// Who may take part. A hello carries our mark and protocol (frames.hpp), the program's version,
// WORLD_SIZE, the rank, a hash of what was asked for, and the job token. All must be right, the
// rank from 1 to WORLD_SIZE - 1 and not there yet. Everybody else is a stranger: told why (if it
// speaks our protocol), dropped, counted, and mentioned in one line at the end. A stranger costs a
// few hundred bytes for at most a few seconds; there are at most as many at a time as ranks and 64
// more; the oldest goes first. Connections that were made but say nothing hold up nobody.
//
// The job token is what launchers give all processes of one job and to no other (launcher.hpp).
//   ids      (torchrun's run id, Slurm's job and step) keep jobs apart that meet on one port by
//            accident. They can be guessed or looked up: they are no protection against anybody who
//            wants to take part. Without any launcher's id the token is empty.
//   secret   SP_PLAN_JOB_TOKEN, the same on all ranks and new for each job, keeps out everybody who
//            can connect but not listen: other users of the cluster, scanners.
// It is compared (in constant time), not proven: it travels in the clear, as NCCL's and torchrun's
// own set-up do. Who can read the network between the hosts, or owns rank 0's address and port,
// learns it. A challenge would hide the secret from them and nothing else: frames that follow are
// neither signed nor secret, so such a neighbour could change the run all the same; that takes TLS
// or IPsec below us. So the secret must not be one that is used for anything else, and the port is
// no thing for an open network.
//
// Where rank 0 listens: at the addresses of MASTER_ADDR, on the port behind MASTER_PORT (torchrun's
// own store has that one). Two cases fall back to all addresses of the host, with a warning: none
// of them is this host's own (NAT, a container's outer address); or the name is a loopback address
// here only, as Debian's /etc/hosts says of a host's own name, while other hosts take part.
#pragma once

#include "runtime/comm/launcher.hpp"
#include "runtime/comm/tcp_connection.hpp"
#include "runtime/comm/transport.hpp"

#include <map>
#include <string>

namespace spp::runtime::tcp {

/// What all ranks of a run must say alike.
struct Identity {
  Hello hello;
  std::string token_variable;  // where the token is from
};
/// InputError if the token is too long.
Identity identity_of(int ranks, const RunSettings& settings);

/// Rank 0: fills `ranks`, by rank. BackendError after the time-out, with who was turned away.
void admit_ranks(const TorchLaunch& launch, const Identity& identity, const RunSettings& settings,
                 std::map<int, Connection>& ranks);

/// The others: connects to rank 0, which may start later. BackendError after the time-out, or if
/// rank 0 turns this rank away.
Connection join(const TorchLaunch& launch, const Identity& identity, const Deadlines& deadlines);

}  // namespace spp::runtime::tcp
