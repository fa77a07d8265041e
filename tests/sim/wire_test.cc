// Mixed versions are served or refused in words, never misread: what every former protocol said is
// kept as it was on the wire (tests/golden/wire; `sim_run --wire FILE` writes one, at each change
// of the protocol's number, and it stays), and is said again to the programs of today.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "compiler/support/sha256.h"
#include "tracker/core/lease_table.h"
#include "tuner/service/core.h"
#include "worker/core/worker_core.h"

namespace whet::testing {
namespace {

using ::testing::HasSubstr;

struct Said {
  int64_t at_ns = 0;
  std::string tag;
  uint64_t session = 0;
  std::string bytes;
};
using Transcript = std::vector<Said>;

// A field that no release has: number 1000, a varint. What a later release adds looks like this.
const std::string kUnknownField = "\xc0\x3e\x07";

std::map<std::string, Transcript> Transcripts() {
  const char* source = std::getenv("WHET_SOURCE_DIR");
  std::map<std::string, Transcript> all;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(source ? source : ".") +
                                                               "/tests/golden/wire")) {
    std::ifstream in(entry.path());
    Transcript& t = all[entry.path().filename()];
    Said said;
    for (std::string hex; in >> said.at_ns >> said.tag >> said.session && std::getline(in, hex);) {
      said.bytes.clear();
      for (size_t i = 1; i + 1 < hex.size(); i += 2)
        said.bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
      t.push_back(said);
    }
  }
  return all;
}

template <typename M>
M Parsed(const Said& said, const std::string& more) {
  M m;
  EXPECT_TRUE(m.ParseFromString(said.bytes + more)) << said.tag << " at " << said.at_ns;
  return m;
}

// What a tracker makes of it: the leases that it grants.
int ReplayToTracker(const Transcript& transcript, const std::string& more) {
  int granted = 0;
  tracker::LeaseTable table({}, "inc", 1, 1'000'001, false, 0);
  for (const Said& said : transcript) {
    tracker::Actions out;
    if (said.tag == "t<")
      out = table.FromWorker(said.at_ns, said.session, Parsed<v1::AttachRequest>(said, more));
    if (said.tag == "l<")
      out = table.FromServer(said.at_ns, said.session, Parsed<v1::LeaseRequest>(said, more));
    for (const tracker::Action& action : out) {
      if (const auto* a = std::get_if<tracker::ToServer>(&action))
        granted += a->message.has_granted();
      const auto* ended = std::get_if<tracker::EndSession>(&action);
      EXPECT_FALSE(ended && !ended->status.ok()) << ended->status;
    }
  }
  return granted;
}

// What a worker does: the measurements that it starts, with their ids.
std::vector<std::string> ReplayToWorker(const Transcript& transcript, const std::string& more,
                                        int* dropped) {
  worker::WorkerConfig config;
  config.device.set_worker_id("w0");
  config.device.set_device_id("w0/cpu0");
  config.device.set_boot_id("boot0");
  config.device.set_key("k");
  worker::WorkerCore core(config, {}, {}, 1);
  std::vector<std::string> started;
  std::deque<worker::Event> events;
  const auto step = [&](int64_t at, const worker::Event& first) {
    events.push_back(first);
    for (; !events.empty(); events.pop_front()) {
      for (worker::Action& action : core.Step(at, events.front())) {
        if (const auto* a = std::get_if<worker::StoreBlob>(&action))
          events.push_back(worker::BlobStored{a->sha256, OkStatus()});
        *dropped += std::holds_alternative<worker::DropResult>(action);
        const auto* run = std::get_if<worker::StartRun>(&action);
        if (!run) continue;
        started.push_back(run->assign.ids().SerializeAsString());
        v1::Measurement m;
        m.set_failure(v1::FAILURE_OK);
        events.push_back(worker::RunEnded{m});
      }
    }
  };
  step(0, worker::Tick{});
  for (const Said& said : transcript) {
    if (said.tag == "t>")
      step(said.at_ns, worker::FromTracker{Parsed<v1::AttachReply>(said, more)});
    if (said.tag == "s>")
      step(said.at_ns, worker::FromServer{Parsed<v1::ServerMessage>(said, more)});
  }
  return started;
}

// What a server that knows nothing of its jobs says: who is greeted, what is refused, in words.
struct Answers {
  int greeted = 0, results = 0, acknowledged = 0, refused = 0;
};
Answers ReplayToServer(const Transcript& transcript, const std::string& more) {
  tuner::CoreConfig config;
  config.generation = "gen";
  tuner::ServiceCore core(config);
  Answers n;
  for (const Said& said : transcript) {
    tuner::Actions out;
    if (said.tag == "s<") {
      const auto m = Parsed<v1::WorkerMessage>(said, more);
      n.results += m.has_result();
      out = core.FromWorker(said.at_ns, said.session, m);
    }
    if (said.tag == "l>") out = core.FromTracker(said.at_ns, Parsed<v1::LeaseReply>(said, more));
    for (const tuner::Action& action : out) {
      if (const auto* a = std::get_if<tuner::SendWorker>(&action)) {
        n.greeted += a->message.has_hello() && a->message.hello().refusal().empty();
        n.acknowledged += a->message.has_ack();
      }
      if (const auto* a = std::get_if<tuner::ResultRefused>(&action)) {
        EXPECT_FALSE(a->why.empty());
        ++n.refused;
      }
      EXPECT_FALSE(std::holds_alternative<tuner::CloseWorker>(action));
    }
  }
  return n;
}

TEST(Wire, EveryProtocolThatWasReleasedIsStillUnderstood) {
  const auto transcripts = Transcripts();
  ASSERT_TRUE(transcripts.contains("protocol-1.txt"));
  for (const auto& [name, transcript] : transcripts) {
    ASSERT_GT(transcript.size(), 20u) << name;
    int assigned = 0;
    for (const Said& said : transcript)
      assigned += said.tag == "s>" && Parsed<v1::ServerMessage>(said, "").has_assign();
    for (const std::string& more : {std::string(), kUnknownField}) {
      SCOPED_TRACE(name + (more.empty() ? "" : ", with fields that are not known yet"));
      EXPECT_EQ(ReplayToTracker(transcript, more), 1);
      int dropped = 0;
      const std::vector<std::string> started = ReplayToWorker(transcript, more, &dropped);
      EXPECT_EQ(static_cast<int>(started.size()), assigned);
      EXPECT_GE(assigned, 4);
      EXPECT_EQ(dropped, assigned) << "what is acknowledged is forgotten";
      size_t next = 0;  // under the ids that it was given out with
      for (const Said& said : transcript) {
        if (said.tag != "s>") continue;
        const auto m = Parsed<v1::ServerMessage>(said, more);
        if (m.has_assign()) {
          ASSERT_LT(next, started.size());
          EXPECT_EQ(started[next++], m.assign().ids().SerializeAsString());
        }
      }
      const Answers answers = ReplayToServer(transcript, more);
      EXPECT_EQ(answers.greeted, 1);
      EXPECT_EQ(answers.results, assigned);
      EXPECT_EQ(answers.refused, assigned);
      EXPECT_EQ(answers.acknowledged, assigned);
    }
  }
}

void SetRange(v1::ProtocolRange* range, uint32_t min, uint32_t max) {
  range->set_min(min);
  range->set_max(max);
}

TEST(Wire, OtherProtocolsAreRefusedInWordsByEveryReader) {
  for (const auto& [min, max] : {std::pair(2u, 3u), std::pair(0u, 0u), std::pair(7u, 4u)}) {
    SCOPED_TRACE(fmt::format("{} to {}", min, max));
    tracker::LeaseTable table({}, "inc", 1, 1000, false, 0);
    v1::AttachRequest attach;
    SetRange(attach.mutable_register_()->mutable_protocol(), min, max);
    v1::LeaseRequest present;
    SetRange(present.mutable_present()->mutable_protocol(), min, max);
    for (const tracker::Actions& out :
         {table.FromWorker(1, 1, attach), table.FromServer(1, 2, present)}) {
      ASSERT_EQ(out.size(), 1u);
      EXPECT_THAT(Message(std::get<tracker::EndSession>(out[0]).status),
                  HasSubstr(fmt::format("protocol {} to {}, this tracker 1", min, max)));
    }
    tuner::ServiceCore core(tuner::CoreConfig{});
    v1::WorkerMessage hello;
    SetRange(hello.mutable_hello()->mutable_protocol(), min, max);
    const tuner::Actions out = core.FromWorker(1, 1, hello);
    ASSERT_GE(out.size(), 2u);
    EXPECT_THAT(std::get<tuner::SendWorker>(out[0]).message.hello().refusal(),
                HasSubstr("install one release on both"));
    EXPECT_TRUE(std::holds_alternative<tuner::CloseWorker>(out[1]));
  }
}

TEST(Wire, PeerThatSpeaksOursAmongOthersIsServed) {
  tracker::LeaseTable table({}, "inc", 1, 1000, false, 0);
  v1::LeaseRequest present;
  SetRange(present.mutable_present()->mutable_protocol(), 1, 9);
  present.mutable_present()->set_server_id("server");
  present.mutable_present()->set_server_address("127.0.0.1:1");
  const tracker::Actions out = table.FromServer(1, 2, present);
  ASSERT_GE(out.size(), 1u);
  EXPECT_EQ(std::get<tracker::ToServer>(out[0]).message.presented().protocol(), 1u);
}

TEST(Wire, WorkerGivesUpAServerOfAnotherProtocolInWords) {
  worker::WorkerCore core({}, {}, {}, 1);
  core.Step(1, worker::Tick{});
  v1::AttachReply registered, lease;
  registered.mutable_registered()->set_protocol(1);
  lease.mutable_lease()->set_incarnation("inc");
  lease.mutable_lease()->set_epoch(5);
  lease.mutable_lease()->set_server_address("127.0.0.1:1");
  core.Step(2, worker::FromTracker{registered});
  core.Step(3, worker::FromTracker{lease});
  v1::ServerMessage hello;
  hello.mutable_hello()->set_protocol(2);
  bool closed = false;
  std::string words;
  for (const worker::Action& action : core.Step(4, worker::FromServer{hello})) {
    closed |= std::holds_alternative<worker::CloseServer>(action);
    if (const auto* a = std::get_if<worker::SayStatus>(&action)) words += Message(a->status);
  }
  EXPECT_TRUE(closed);
  EXPECT_THAT(words, HasSubstr("unknown protocol"));
}

}  // namespace
}  // namespace whet::testing
