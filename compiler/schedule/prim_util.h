// Shared by the primitives: lookups that refuse in words, and edits of the statement tree.
#pragma once
#include <charconv>
#include <functional>

#include "compiler/loop/loop.h"
#include "compiler/loop/region.h"
#include "compiler/schedule/schedule.h"

namespace whet::schedule {

inline constexpr int64_t kMaxUnroll = 256;  // iterations of one loop

using loop::As;
using loop::BlockFields;
using loop::BlockNode;
using loop::BlockSite;
using loop::ForKind;
using loop::ForNode;
using loop::Program;
using loop::SeqNode;
using loop::Stmt;

StatusOr<const ForNode*> NeedLoop(const Program& p, const std::string& name);
StatusOr<int64_t> NeedInt(const std::string& text, int64_t lo, int64_t hi);
StatusOr<expr::Buffer> NeedIntermediate(const Program& p, const std::string& name);
// A name for a new loop, block or buffer: legal characters, not in use for the same kind of thing.
Status NeedFreeLoop(const Program& p, const std::string& name);
Status NeedFreeBlockAndBuffer(const Program& p, const std::string& name);

// The statement tree with the loop `name` replaced.
Stmt ReplaceLoop(const Stmt& root, const std::string& name,
                 const std::function<Stmt(const ForNode&)>& f);
// Replaces a loop variable in all bindings and predicates below; `extra` (may be null) is and-ed to
// predicates.
Stmt SubstituteLoop(const Stmt& body, const expr::Var& var, const expr::Expr& value,
                    const expr::Expr& extra);
// Removes a block with the loops that only it used.
Stmt RemoveBlock(const Stmt& root, const BlockNode* block);
Stmt ReplaceBlock(const Stmt& root, const BlockNode* block, const Stmt& by);
// Puts `added` directly before (or after) the child of `parent`'s body (or of the root, when empty)
// that contains `inside`.
Stmt InsertBeside(const Stmt& root, const std::string& parent, const BlockNode* inside,
                  const Stmt& added, bool before);

std::vector<BlockSite> Writers(const Program& p, const expr::Buffer& b);
std::vector<BlockSite> Readers(const Program& p, const expr::Buffer& b);
expr::Bounds LoopBounds(const BlockSite& site);
// out_indices are distinct spatial iteration variables: the map from dimension to iter number; else
// empty.
std::vector<int> PlainOutput(const BlockNode& b);
// A nest that runs `fields` over iteration domains, one fresh loop `<block>.<iter>` each, offset by
// `lo`.
Stmt NestFor(BlockFields fields, const std::vector<loop::DimRange>& domain,
             const expr::Bounds& outer);

}  // namespace whet::schedule
