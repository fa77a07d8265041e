// Splits off the root-level nests that read only constants: they run once, at compile time.
#include "compiler/loop/lower.h"

namespace whet::loop {
namespace {

std::vector<Stmt> RootItems(const Stmt& body) {
  if (const auto* seq = As<SeqNode>(body)) return seq->items;
  return body ? std::vector<Stmt>{body} : std::vector<Stmt>{};
}

void Used(const Stmt& s, std::vector<Buffer>& loaded, std::vector<Buffer>& stored) {
  auto add = [](std::vector<Buffer>& v, const Buffer& b) {
    for (const Buffer& x : v) {
      if (x == b) return;
    }
    v.push_back(b);
  };
  Walk(s, [&](const Stmt& x) {
    if (const auto* b = As<BlockNode>(x)) {
      for (const auto* l : Loads(b->value)) add(loaded, l->buffer);
      if (b->init) {
        for (const auto* l : Loads(b->init)) add(loaded, l->buffer);
      }
      add(stored, b->out);
    }
  });
}

bool Has(const std::vector<Buffer>& v, const Buffer& b) {
  for (const Buffer& x : v) {
    if (x == b) return true;
  }
  return false;
}

}  // namespace

StatusOr<PrepackSplit> SplitPrepack(const Program& p) {
  PrepackSplit r;
  std::vector<Stmt> prepack, main;
  std::vector<Buffer> made;     // constants computed so far
  std::vector<Buffer> written;  // by anything
  for (const BlockSite& site : AllBlocks(p)) written.push_back(site.block->out);
  for (const Stmt& item : RootItems(p.body)) {
    std::vector<Buffer> loaded, stored;
    Used(item, loaded, stored);
    bool constant = !loaded.empty();
    // A constant that main makes, say in local memory, is not there yet when prepack runs.
    for (const Buffer& b : loaded) constant &= b->constant && (!Has(written, b) || Has(made, b));
    for (const Buffer& b : stored) constant &= b->constant && b->scope == expr::Scope::kGlobal;
    (constant ? prepack : main).push_back(item);
    if (constant) made.insert(made.end(), stored.begin(), stored.end());
  }
  std::vector<Buffer> loaded, stored;
  for (const Stmt& s : main) Used(s, loaded, stored);
  for (const Buffer& b : made) {
    if (Has(loaded, b)) r.packed.push_back(b);
  }
  r.prepack.name = p.name + ".prepack";
  r.prepack.body = MakeSeq(prepack);
  r.main.name = p.name;
  r.main.body = MakeSeq(main);
  std::vector<Buffer> pre_loaded, pre_stored;
  for (const Stmt& s : prepack) Used(s, pre_loaded, pre_stored);
  for (const Param& param : p.params) {
    if (param.role == Role::kInput && Has(pre_loaded, param.buffer))
      r.prepack.params.push_back(param);
    // A constant that only the prepack reads is no argument of the kernel.
    if (param.role != Role::kInput || !param.buffer->constant || Has(loaded, param.buffer))
      r.main.params.push_back(param);
  }
  for (const Buffer& b : r.packed) {
    r.prepack.params.push_back({b, Role::kOutput});
    r.main.params.push_back({b, Role::kInput});
  }
  for (const Buffer& b : p.intermediates) {
    if (Has(r.packed, b)) continue;
    (Has(made, b) ? r.prepack : r.main).intermediates.push_back(b);
  }
  return r;
}

}  // namespace whet::loop
