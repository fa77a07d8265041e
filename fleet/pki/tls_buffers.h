// Memory of connections that are idle: an object of OpenSSL for one keeps 33 KB of buffers, which
// it frees between records if it is told. Who makes these objects for us (gRPC) neither tells it
// nor hands them out; they are told as they are made.
#pragma once

namespace whet::pki {

// Of all TLS connections of this process from now on. Any thread; more than once is like once.
void FreeTlsBuffersWhenIdle();

}  // namespace whet::pki
