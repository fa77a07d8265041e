// whet pki: the certificates of a fleet, made offline.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "compiler/driver/report.h"
#include "compiler/driver/verbs.h"
#include "compiler/support/clock.h"
#include "fleet/pki/authority.h"

namespace whet::driver {
namespace {

using Json = nlohmann::ordered_json;

int64_t WallSeconds() { return RealClock().WallMs() / 1000; }

class PkiVerb : public Verb {
 public:
  void Declare(Flags& flags) override {
    flags.Positional("ACTION", &action_, "init, issue, renew, deny or show")
        .OneOf({"init", "issue", "renew", "deny", "show"});
    flags.Positional("WHO", &who_,
                     "issue, renew, deny: a role, one of admin, client, worker, server, tracker; "
                     "deny: or serial:HEX; show: the folder of a bundle",
                     Flags::Need::kOptional);
    flags.Positional("NAME", &name_, "issue, renew, deny: the name within the role",
                     Flags::Need::kOptional);
    flags.Add("--ca", &ca_, "folder of the CA; keep it away from every server").Value("DIR");
    flags
        .Add("--days", &days_,
             fmt::format("init, issue: days until the end (default: {} for a CA, else {})",
                         pki::kCaDays, pki::kDefaultDays))
        .Range(0, 2 * pki::kCaDays);
    flags
        .Add("--for", &servers_,
             "issue, renew: the only servers and trackers that the holder will talk to (default: "
             "those issued so far)")
        .Value("NAME");
    flags.Add("--out", &out_, "issue, renew: folder of the bundle (default: CA/bundles/ROLE-NAME)")
        .Value("DIR");
    flags.Json(&json_);
    flags.Notes(
        "init    make a CA; its private key never leaves the folder\n"
        "issue   make a bundle, a folder to carry to the machine that is named: --tls DIR there\n"
        "renew   the next certificate of a name, in its bundle; without a name, of all whose life "
        "is two thirds over;\n"
        "        carry it over the old one: programs take it up without a restart\n"
        "deny    a name, with all its certificates, or one certificate by serial:HEX; carry the "
        "CA's file 'denied'\n"
        "        to the bundles of servers and trackers: they take it up at once\n"
        "show    what was issued, and until when; or what is in a bundle");
    flags.Example("whet pki init --ca whet-ca");
    flags.Example("whet pki issue server lab --ca whet-ca");
    flags.Example("whet pki issue worker rack1-pi4 --ca whet-ca --for lab");
    flags.Example("whet pki deny worker rack1-pi4 --ca whet-ca");
  }

  int Run() override { return Explain("pki", Go()); }

 private:
  Status Go() {
    if (action_ == "init") return Init();
    if (action_ == "issue") return Issue();
    if (action_ == "renew") return Renew();
    if (action_ == "deny") return Deny();
    return who_.empty() ? ShowIssued() : ShowBundle();
  }

  StatusOr<pki::Name> Named() const {
    const pki::Role role = pki::RoleOf(who_);
    if (role == pki::Role::kNone)
      return InvalidArgument("'{}' is not a role; the roles are {}", who_, pki::kRoles);
    if (!pki::IsId(name_)) return InvalidArgument("'{}' is not a name: {}", name_, pki::kIdRule);
    return pki::Name{role, name_};
  }

  Status Init() {
    if (!who_.empty()) return InvalidArgument("init takes no name; --ca DIR names the folder");
    const int days = days_ == 0 ? pki::kCaDays : static_cast<int>(days_);
    WHET_RETURN_IF_ERROR(pki::Authority::Init(ca_, days, WallSeconds()).status());
    if (TextWanted(json_))
      fmt::print(
          "a CA is in '{}', until {}; its ca.key makes any certificate: keep the folder "
          "offline\n",
          ca_, pki::DateOf(WallSeconds() + days * pki::kDay));
    return WriteJson(json_, {{"ca", ca_}, {"days", days}});
  }

  Status Issue() {
    pki::Authority::Request request;
    WHET_ASSIGN_OR_RETURN(request.name, Named());
    if (days_ != 0) request.days = static_cast<int>(days_);
    request.servers = servers_;
    request.out = out_;
    WHET_ASSIGN_OR_RETURN(pki::Authority ca, pki::Authority::Open(ca_));
    WHET_ASSIGN_OR_RETURN(const pki::CertificateInfo c, ca.Issue(request, WallSeconds()));
    return Made({c}, ca);
  }

  Status Renew() {
    WHET_ASSIGN_OR_RETURN(pki::Authority ca, pki::Authority::Open(ca_));
    std::vector<pki::CertificateInfo> made;
    if (who_.empty()) {
      if (!out_.empty() || !servers_.empty())
        return InvalidArgument("--out and --for belong to one name: renew ROLE NAME");
      WHET_ASSIGN_OR_RETURN(const auto due, ca.DueForRenewal(WallSeconds()));
      for (const pki::CertificateInfo& c : due) {
        WHET_ASSIGN_OR_RETURN(pki::CertificateInfo next, ca.Renew(c.name, {}, "", WallSeconds()));
        made.push_back(std::move(next));
      }
    } else {
      WHET_ASSIGN_OR_RETURN(const pki::Name name, Named());
      WHET_ASSIGN_OR_RETURN(pki::CertificateInfo next,
                            ca.Renew(name, servers_, out_, WallSeconds()));
      made.push_back(std::move(next));
    }
    return Made(made, ca);
  }

  Status Made(const std::vector<pki::CertificateInfo>& made, const pki::Authority& ca) const {
    Json list = Json::array();
    for (const pki::CertificateInfo& c : made) {
      const std::string dir = out_.empty() ? ca.BundleDir(c.name) : out_;
      if (TextWanted(json_))
        fmt::print("{} until {}: carry '{}' to its machine, readable by its user alone\n",
                   c.name.Text(), pki::DateOf(c.not_after_s), dir);
      Json j = JsonOf(c);
      j["bundle"] = dir;
      list.push_back(std::move(j));
    }
    if (made.empty() && TextWanted(json_)) fmt::print("nothing is due\n");
    return WriteJson(json_, {{"made", list}});
  }

  Status Deny() {
    std::string text = who_;
    if (text.rfind("serial:", 0) != 0) {
      WHET_ASSIGN_OR_RETURN(const pki::Name name, Named());
      text = name.Text();
    } else if (!name_.empty()) {
      return InvalidArgument("a serial needs no name");
    }
    WHET_ASSIGN_OR_RETURN(pki::Authority ca, pki::Authority::Open(ca_));
    WHET_RETURN_IF_ERROR(ca.Deny(text));
    const std::string list = pki::DeniedPath(ca.dir());
    if (TextWanted(json_))
      fmt::print("{} is denied in '{}': carry it to the bundles of servers and trackers\n", text,
                 list);
    return WriteJson(json_, {{"denied", text}, {"list", list}});
  }

  static Json JsonOf(const pki::CertificateInfo& c) {
    return {{"role", std::string(pki::RoleName(c.name.role))},
            {"name", c.name.id},
            {"serial", c.serial},
            {"not_before_s", c.not_before_s},
            {"not_after_s", c.not_after_s},
            {"renewal_due", pki::RenewalDue(c, WallSeconds())}};
  }

  static std::string Life(const pki::CertificateInfo& c) {
    const int64_t left = c.not_after_s - WallSeconds();
    if (left < 0) return fmt::format("ended {}", pki::DateOf(c.not_after_s));
    return fmt::format("until {}, {} days{}", pki::DateOf(c.not_after_s), left / pki::kDay,
                       pki::RenewalDue(c, WallSeconds()) ? ", due for renewal" : "");
  }

  Status ShowIssued() {
    WHET_ASSIGN_OR_RETURN(const pki::Authority ca, pki::Authority::Open(ca_));
    WHET_ASSIGN_OR_RETURN(const std::vector<pki::Issued> all, ca.List());
    Json list = Json::array();
    for (const pki::Issued& i : all) {
      Json j = JsonOf(i.certificate);
      j["latest"] = i.latest;
      j["denied"] = i.denied;
      list.push_back(std::move(j));
      if (TextWanted(json_))
        fmt::print("{:<24} {}  {}\n", i.certificate.name.Text(), i.certificate.serial,
                   i.denied    ? "denied"
                   : !i.latest ? "replaced; " + Life(i.certificate)
                               : Life(i.certificate));
    }
    if (all.empty() && TextWanted(json_)) fmt::print("nothing was issued\n");
    return WriteJson(json_, {{"issued", list}});
  }

  Status ShowBundle() {
    if (!name_.empty()) return InvalidArgument("show takes the folder of one bundle");
    WHET_ASSIGN_OR_RETURN(
        const pki::Bundle bundle,
        pki::LoadBundle(who_,
                        {pki::Role::kAdmin, pki::Role::kClient, pki::Role::kWorker,
                         pki::Role::kServer, pki::Role::kTracker},
                        WallSeconds()));
    if (TextWanted(json_)) {
      fmt::print("{}  {}\nserial {}\n", bundle.self.name.Text(), Life(bundle.self),
                 bundle.self.serial);
      fmt::print("talks to {}\n", bundle.servers.empty()
                                      ? "any server of its CA"
                                      : fmt::format("{}", fmt::join(bundle.servers, ", ")));
    }
    Json j = JsonOf(bundle.self);
    j["servers"] = bundle.servers;
    return WriteJson(json_, j);
  }

  std::string action_, who_, name_, ca_ = "whet-ca", out_, json_;
  int64_t days_ = 0;
  std::vector<std::string> servers_;
};

}  // namespace

std::unique_ptr<Verb> MakePki() { return std::make_unique<PkiVerb>(); }

}  // namespace whet::driver
