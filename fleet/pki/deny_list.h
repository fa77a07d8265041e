// Who is no longer admitted, however valid the certificate: a text file with one line per name
// ("worker/rack1": every certificate of it, also a later one) or per certificate
// ("serial:1a2b...").
// '#' begins a comment. An immutable value; Read may be called from any thread.
#pragma once
#include <set>
#include <string>
#include <string_view>

#include "fleet/pki/certificate.h"

namespace whet::pki {

class DenyList {
 public:
  // InvalidArgument names the line. One line that cannot be read makes the whole list unreadable:
  // a list that is read in part admits whom it was to keep out.
  static StatusOr<DenyList> Parse(std::string_view text);
  // An empty list when there is no file.
  static StatusOr<DenyList> Read(const std::string& path);
  // The line that a list gets for it. InvalidArgument for what is neither.
  static StatusOr<std::string> LineOf(std::string_view name_or_serial);

  bool Denies(const CertificateInfo& certificate) const;
  bool DeniesName(const Name& name) const { return names_.count(name.Text()) > 0; }
  size_t size() const { return names_.size() + serials_.size(); }

 private:
  std::set<std::string> names_, serials_;
};

}  // namespace whet::pki
