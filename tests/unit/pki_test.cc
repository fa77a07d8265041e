// Certificates: what the authority makes is accepted, what deviates is refused with the reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <functional>

#include "compiler/support/env.h"
#include "fleet/pki/authority.h"
#include "tests/support/certificates.h"

namespace whet::pki {
namespace {

using testing::CertificateSpec;
using testing::Folder;
using ::testing::HasSubstr;
using testing::MakeIdentity;

constexpr int64_t kNow = 1'900'000'000;

mode_t ModeOf(const std::string& path) {
  struct stat info = {};
  EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
  return info.st_mode & 07777;
}

std::string Read(const std::string& path) {
  const StatusOr<std::string> text = ReadFile(path, 1 << 20);
  EXPECT_TRUE(text.ok()) << text.status();
  return text.ok() ? *text : "";
}

class PkiTest : public ::testing::Test {
 protected:
  PkiTest() { EXPECT_TRUE(Authority::Init(ca_dir_, kCaDays, kNow).ok()); }

  StatusOr<CertificateInfo> Issue(Role role, const std::string& id, int days = kDefaultDays,
                                  int64_t now = kNow) {
    WHET_ASSIGN_OR_RETURN(Authority ca, Authority::Open(ca_dir_));
    return ca.Issue({.name = {role, id}, .days = days}, now);
  }
  std::string BundleOf(Role role, const std::string& id) const {
    return fmt::format("{}/bundles/{}-{}", ca_dir_, RoleName(role), id);
  }
  std::string IdentityOf(Role role, const std::string& id) const {
    return Read(IdentityPath(BundleOf(role, id)));
  }
  std::string ca_pem() const { return Read(CaPath(ca_dir_)); }
  // Signed by the CA, valid at kNow, of client/alice.
  CertificateSpec Good() const {
    CertificateSpec spec;
    spec.not_before_s = kNow - 100;
    spec.not_after_s = kNow + 100;
    spec.ca_dir = ca_dir_;
    return spec;
  }

  Folder folder_;
  const std::string ca_dir_ = folder_ / "ca";
};

TEST_F(PkiTest, EachRoleGetsACertificateForItsSidesAndNoOther) {
  ASSERT_TRUE(Issue(Role::kServer, "lab").ok());
  for (const Role role : {Role::kAdmin, Role::kClient, Role::kWorker, Role::kTracker})
    ASSERT_TRUE(Issue(role, "n1").ok()) << RoleName(role);
  for (const auto& [role, id] : {std::pair{Role::kServer, "lab"}, std::pair{Role::kAdmin, "n1"},
                                 std::pair{Role::kClient, "n1"}, std::pair{Role::kWorker, "n1"},
                                 std::pair{Role::kTracker, "n1"}}) {
    const std::string pem = IdentityOf(role, id);
    const auto info = ReadCertificate(pem);
    ASSERT_TRUE(info.ok()) << info.status();
    EXPECT_EQ(info->name, (Name{role, id}));
    EXPECT_EQ(info->not_after_s, kNow + kDefaultDays * kDay);
    EXPECT_EQ(VerifyCertificate(pem, ca_pem(), Side::kDials, kNow).ok(), role != Role::kTracker);
    EXPECT_EQ(VerifyCertificate(pem, ca_pem(), Side::kListens, kNow).ok(),
              role == Role::kServer || role == Role::kTracker);
    EXPECT_TRUE(LoadBundle(BundleOf(role, id), {role}, kNow).ok());
  }
}

TEST_F(PkiTest, PrivateFilesAreTheirOwnersAlone) {
  ASSERT_TRUE(Issue(Role::kServer, "lab").ok());
  EXPECT_EQ(ModeOf(ca_dir_ + "/ca.key"), 0600u);
  EXPECT_EQ(ModeOf(IdentityPath(BundleOf(Role::kServer, "lab"))), 0600u);
  EXPECT_EQ(ModeOf(BundleOf(Role::kServer, "lab")), 0700u);
}

TEST_F(PkiTest, NothingIsOverwritten) {
  const std::string key = Read(ca_dir_ + "/ca.key");
  const Status again = Authority::Init(ca_dir_, kCaDays, kNow).status();
  EXPECT_EQ(again.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(again), HasSubstr("ca.key"));
  EXPECT_EQ(Read(ca_dir_ + "/ca.key"), key);
  ASSERT_TRUE(Issue(Role::kServer, "lab").ok());
  const std::string identity = IdentityOf(Role::kServer, "lab");
  EXPECT_THAT(Message(Issue(Role::kServer, "lab").status()), HasSubstr("pki renew server lab"));
  EXPECT_EQ(IdentityOf(Role::kServer, "lab"), identity);
  StatusOr<Authority> ca = Authority::Open(ca_dir_);
  ASSERT_TRUE(ca.ok());
  const Status taken =
      ca->Issue(
            {.name = {Role::kClient, "bob"}, .servers = {}, .out = BundleOf(Role::kServer, "lab")},
            kNow)
          .status();
  EXPECT_THAT(Message(taken), HasSubstr("not overwritten"));
  EXPECT_EQ(IdentityOf(Role::kServer, "lab"), identity);
  EXPECT_EQ(Authority::Open(ca_dir_).status().code(), absl::StatusCode::kUnavailable)
      << "one command at a time";
}

TEST_F(PkiTest, AWorkerIsPinnedToServersOrNotIssued) {
  EXPECT_THAT(Message(Issue(Role::kWorker, "rack1").status()), HasSubstr("--for NAME"));
  ASSERT_TRUE(Issue(Role::kServer, "lab").ok());
  ASSERT_TRUE(Issue(Role::kTracker, "registry").ok());
  ASSERT_TRUE(Issue(Role::kWorker, "rack1").ok());
  const auto bundle = LoadBundle(BundleOf(Role::kWorker, "rack1"), {Role::kWorker}, kNow);
  ASSERT_TRUE(bundle.ok()) << bundle.status();
  EXPECT_THAT(bundle->servers, ::testing::ElementsAre("lab", "registry"));
}

TEST_F(PkiTest, RenewalMakesANewKeyWithTheSameLifeAndPins) {
  ASSERT_TRUE(Issue(Role::kServer, "lab").ok());
  ASSERT_TRUE(Issue(Role::kWorker, "rack1", 30).ok());
  const std::string before = IdentityOf(Role::kWorker, "rack1");
  const int64_t later = kNow + 25 * kDay;
  StatusOr<Authority> ca = Authority::Open(ca_dir_);
  ASSERT_TRUE(ca.ok());
  auto due = ca->DueForRenewal(kNow + 19 * kDay);
  ASSERT_TRUE(due.ok());
  EXPECT_EQ(due->size(), 0u);
  due = ca->DueForRenewal(later);
  ASSERT_TRUE(due.ok());
  ASSERT_EQ(due->size(), 1u);
  EXPECT_EQ((*due)[0].name.Text(), "worker/rack1");
  const auto next = ca->Renew({Role::kWorker, "rack1"}, {}, "", later);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(next->not_after_s, later + 30 * kDay);
  EXPECT_NE(IdentityOf(Role::kWorker, "rack1"), before);
  EXPECT_EQ(ca->DueForRenewal(later)->size(), 0u);
  const auto bundle = LoadBundle(BundleOf(Role::kWorker, "rack1"), {Role::kWorker}, later);
  ASSERT_TRUE(bundle.ok()) << bundle.status();
  EXPECT_THAT(bundle->servers, ::testing::ElementsAre("lab"));
  EXPECT_EQ(ca->Renew({Role::kWorker, "rack9"}, {}, "", later).status().code(),
            absl::StatusCode::kNotFound);
  const auto all = ca->List();
  ASSERT_TRUE(all.ok());
  ASSERT_EQ(all->size(), 3u);
  EXPECT_FALSE((*all)[1].latest);
  EXPECT_TRUE((*all)[2].latest);
}

TEST_F(PkiTest, ADeniedNameIsNeitherIssuedNorRenewed) {
  ASSERT_TRUE(Issue(Role::kClient, "alice").ok());
  StatusOr<Authority> ca = Authority::Open(ca_dir_);
  ASSERT_TRUE(ca.ok());
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(ca->Deny("client/alice").ok());
    EXPECT_TRUE(ca->Deny("worker/never").ok());
  }
  EXPECT_EQ(Read(ca_dir_ + "/denied"), "client/alice\nworker/never\n");
  EXPECT_EQ(ca->Renew({Role::kClient, "alice"}, {}, "", kNow).status().code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(ca->Issue({.name = {Role::kWorker, "never"}}, kNow).status().code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_FALSE(ca->Deny("alice").ok());
  EXPECT_FALSE(ca->Deny("serial:XYZ").ok());
  EXPECT_TRUE((*ca->List())[0].denied);
}

TEST_F(PkiTest, LivesAndNamesHaveBounds) {
  for (const int days : {0, -1, kMaxDays + 1})
    EXPECT_THAT(Message(Issue(Role::kClient, "a", days).status()), HasSubstr("1 to 825 days"));
  for (const char* id : {"", "-a", "A", "a/b", "a.b", "a,b", "../x", "a b"})
    EXPECT_THAT(Message(Issue(Role::kClient, id).status()), HasSubstr("lower-case")) << id;
  EXPECT_FALSE(Issue(Role::kClient, std::string(64, 'a')).ok());
  EXPECT_FALSE(Issue(Role::kNone, "a").ok());
  EXPECT_THAT(Message(Issue(Role::kClient, "late", 90, kNow + (kCaDays - 10) * kDay).status()),
              HasSubstr("the CA ends before"));
}

TEST_F(PkiTest, WhatDeviatesIsRefusedThoughTheCaHasSignedIt) {
  const auto verify = [&](const CertificateSpec& spec, Side side = Side::kDials) {
    return VerifyCertificate(MakeIdentity(spec), ca_pem(), side, kNow).status();
  };
  EXPECT_TRUE(verify(Good()).ok()) << verify(Good());
  Folder other;
  ASSERT_TRUE(Authority::Init(other.path(), kCaDays, kNow).ok());
  const std::vector<std::pair<const char*, std::function<void(CertificateSpec&)>>> wrong = {
      {"expired", [](auto& s) { s.not_after_s = kNow - 1; }},
      {"not yet valid", [](auto& s) { s.not_before_s = kNow + 50; }},
      {"self-signed", [](auto& s) { s.ca_dir = ""; }},
      {"of another CA", [&](auto& s) { s.ca_dir = other.path(); }},
      {"a CA's", [](auto& s) { s.constraints = "critical,CA:TRUE"; }},
      {"two names", [](auto& s) { s.names.push_back("URI:whet://admin/alice"); }},
      {"no name", [](auto& s) { s.names.clear(); }},
      {"a host's name", [](auto& s) { s.names = {"DNS:client"}; }},
      {"a name of others", [](auto& s) { s.names = {"URI:spiffe://client/alice"}; }},
      {"no role", [](auto& s) { s.names = {"URI:whet://king/alice"}; }},
      {"no id", [](auto& s) { s.names = {"URI:whet://client/"}; }},
      {"a path as id", [](auto& s) { s.names = {"URI:whet://client/a/b"}; }},
      {"RSA", [](auto& s) { s.key = "RSA"; }},
      {"another curve", [](auto& s) { s.key = "P-384"; }},
      {"to serve, too", [](auto& s) { s.uses = "clientAuth,serverAuth"; }},
      {"to serve only", [](auto& s) { s.uses = "serverAuth"; }},
      {"for nothing", [](auto& s) { s.uses = ""; }},
      {"for mail, too", [](auto& s) { s.uses = "clientAuth,emailProtection"; }},
      {"to sign others", [](auto& s) { s.key_usage = "critical,digitalSignature,keyCertSign"; }},
      {"any key usage", [](auto& s) { s.key_usage = ""; }},
      {"a tracker's, dialling",
       [](auto& s) {
         s.names = {"URI:whet://tracker/t"};
         s.uses = "serverAuth";
       }},
  };
  for (const auto& [what, change] : wrong) {
    CertificateSpec spec = Good();
    change(spec);
    EXPECT_FALSE(verify(spec).ok()) << what;
  }
  EXPECT_FALSE(verify(Good(), Side::kListens).ok()) << "a client that serves";
}

TEST_F(PkiTest, AnyTextInPlaceOfACertificateIsAnError) {
  const std::string pem = MakeIdentity(Good());
  for (const std::string& text :
       {std::string(), std::string("x"), std::string("-----BEGIN CERTIFICATE-----\n"),
        std::string("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
        pem.substr(0, pem.size() / 2), std::string(100'000, 'A'), std::string("\0\0\0", 3)}) {
    EXPECT_FALSE(ReadCertificate(text).ok());
    EXPECT_FALSE(VerifyCertificate(text, ca_pem(), Side::kDials, kNow).ok());
    EXPECT_FALSE(VerifyCertificate(pem, text, Side::kDials, kNow).ok());
  }
}

class BundleTest : public PkiTest {
 protected:
  BundleTest() {
    EXPECT_TRUE(Issue(Role::kServer, "lab").ok());
    dir_ = BundleOf(Role::kServer, "lab");
  }
  Status Load(int64_t now = kNow, Role role = Role::kServer) {
    return LoadBundle(dir_, {role}, now).status();
  }
  std::string dir_;
};

TEST_F(BundleTest, WrongModesAreRefusedWithTheWayOut) {
  ASSERT_TRUE(Load().ok()) << Load();
  for (const mode_t mode : {0640, 0604, 0644, 0666, 0620, 0610}) {
    ASSERT_EQ(chmod(IdentityPath(dir_).c_str(), mode), 0);
    EXPECT_EQ(Load().code(), absl::StatusCode::kPermissionDenied) << mode;
    EXPECT_THAT(Message(Load()), HasSubstr("chmod 600 '" + IdentityPath(dir_)));
  }
  chmod(IdentityPath(dir_).c_str(), 0600);
  for (const std::string& path : {CaPath(dir_), ServersPath(dir_), dir_}) {
    const mode_t before = ModeOf(path);
    for (const mode_t mode : {before | 020u, before | 002u}) {
      ASSERT_EQ(chmod(path.c_str(), mode), 0);
      EXPECT_THAT(Message(Load()), HasSubstr("can change it")) << path;
    }
    chmod(path.c_str(), before);
  }
  EXPECT_TRUE(Load().ok());
  ASSERT_EQ(chmod((ca_dir_ + "/ca.key").c_str(), 0640), 0);
  EXPECT_THAT(Message(Authority::Open(ca_dir_).status()), HasSubstr("chmod 600"));
}

TEST_F(BundleTest, EndsBeginningsRolesAndMixturesAreToldApart) {
  EXPECT_THAT(Message(Load(kNow + 91 * kDay)), HasSubstr("whet pki renew server lab"));
  EXPECT_THAT(Message(Load(kNow - kDay)), HasSubstr("set the clock"));
  EXPECT_THAT(Message(Load(kNow, Role::kWorker)), HasSubstr("is for server/lab"));
  Folder other;
  ASSERT_TRUE(Authority::Init(other.path(), kCaDays, kNow).ok());
  const std::string ca = ca_pem(), identity = IdentityOf(Role::kServer, "lab");
  ASSERT_TRUE(WriteFile(CaPath(dir_), Read(CaPath(other.path()))).ok());
  EXPECT_FALSE(Load().ok());
  ASSERT_TRUE(WriteFile(CaPath(dir_), ca).ok());
  CertificateSpec spec = Good();
  const std::string stranger = MakeIdentity(spec);
  const size_t cut = identity.find("-----BEGIN CERTIFICATE");
  ASSERT_TRUE(WriteFile(IdentityPath(dir_),
                        stranger.substr(0, stranger.find("-----BEGIN CERT")) + identity.substr(cut))
                  .ok());
  EXPECT_THAT(Message(Load()), HasSubstr("not that of the certificate"));
  ASSERT_TRUE(WriteFile(IdentityPath(dir_), identity.substr(cut)).ok());
  EXPECT_THAT(Message(Load()), HasSubstr("no private key"));
  ASSERT_TRUE(WriteFile(IdentityPath(dir_), identity.substr(0, cut)).ok());
  EXPECT_THAT(Message(Load()), HasSubstr("no certificate"));
  ASSERT_TRUE(WriteFile(IdentityPath(dir_), identity).ok());
  ASSERT_TRUE(WriteFile(ServersPath(dir_), "lab\n../x\n").ok());
  EXPECT_THAT(Message(Load()), HasSubstr("'../x'"));
  ASSERT_TRUE(RemoveFile(IdentityPath(dir_)).ok());
  EXPECT_EQ(Load().code(), absl::StatusCode::kNotFound);
}

TEST(DenyListTest, NamesAndSerialsAreDeniedAndABadLineSpoilsTheList) {
  CertificateInfo alice;
  alice.name = {Role::kClient, "alice"};
  alice.serial = "00ff";
  EXPECT_FALSE(DenyList::Parse("")->Denies(alice));
  EXPECT_FALSE(DenyList::Parse("client/bob\nworker/alice\nserial:ff\n")->Denies(alice));
  EXPECT_TRUE(DenyList::Parse("# who left\n\n  client/alice # in May \r\n")->Denies(alice));
  EXPECT_TRUE(DenyList::Parse("serial:00ff")->Denies(alice));
  EXPECT_EQ(DenyList::Parse("client/a\nclient/a\nserial:1\n")->size(), 2u);
  for (const char* bad : {"client", "client/", "client/A", "alice", "serial:", "serial:GG",
                          "client/a client/b", "client/a,client/b", "king/a", "\x01"}) {
    const auto list = DenyList::Parse(std::string("client/x\n") + bad);
    EXPECT_FALSE(list.ok()) << bad;
    EXPECT_THAT(Message(list.status()), HasSubstr("line 2")) << bad;
  }
  Folder folder;
  const std::string path = folder / "denied";
  ASSERT_TRUE(WriteFile(path, "client/alice\n").ok());
  EXPECT_TRUE(DenyList::Read(path)->Denies(alice));
  ASSERT_EQ(chmod(path.c_str(), 0620), 0);
  EXPECT_THAT(Message(DenyList::Read(path).status()), HasSubstr("chmod 600"));
  EXPECT_EQ(DenyList::Read("/nonexistent/denied")->size(), 0u);
  EXPECT_FALSE(DenyList::Read("/").ok());
}

TEST(CertificateTest, RenewalIsDueAfterTwoThirdsOfALife) {
  CertificateInfo c;
  c.not_before_s = 1000;
  c.not_after_s = 1000 + 90 * kDay;
  EXPECT_FALSE(RenewalDue(c, 1000 + 60 * kDay - 1));
  EXPECT_TRUE(RenewalDue(c, 1000 + 60 * kDay));
  EXPECT_EQ(DateOf(0), "1970-01-01 00:00 UTC");
}

TEST(NameTest, NamesSurviveTheirTexts) {
  for (const Role role :
       {Role::kAdmin, Role::kClient, Role::kWorker, Role::kServer, Role::kTracker}) {
    const Name name{role, "a-1"};
    EXPECT_EQ(ParseName(name.Text()).value(), name);
    EXPECT_EQ(NameOfUri(UriOf(name)).value(), name);
    EXPECT_EQ(RoleOf(RoleName(role)), role);
  }
  EXPECT_EQ(RoleOf("none"), Role::kNone);
  EXPECT_EQ(Printable("a\nevent=x \"y\" 'z' \x80\x7f"), "a?event=x ?y? ?z? ??");
  EXPECT_EQ(Printable(std::string(500, 'a')).size(), 100u);
  EXPECT_EQ(Message(NameOfUri("whet\n").status()).find('\n'), std::string::npos);
  for (const char* bad : {"", "worker", "worker/", "/a", "none/a", "worker/a/b", "Worker/a"})
    EXPECT_FALSE(ParseName(bad).ok()) << bad;
}

}  // namespace
}  // namespace whet::pki
