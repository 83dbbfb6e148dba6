/* The C ABI of rust/ for downloads: HTTP(S) requests and digests. The conventions are those of mlxlm_text.h. */
#ifndef MLXLM_NET_H_
#define MLXLM_NET_H_

#include "mlxlm_text.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The numbers that MlxlmStatus shares mean the same here. */
typedef enum MlxlmNetStatus {
  MLXLM_NET_OK = 0,
  MLXLM_NET_INVALID =
      1,               /* trying again cannot help: a malformed URL or certificate, a certificate nobody vouches for */
  MLXLM_NET_FAULT = 3, /* a fault inside a crate */
  MLXLM_NET_BROKEN = 4 /* no connection, a cut one, a timeout, or no HTTP: trying again may help */
} MlxlmNetStatus;

/* Keeps connections for reuse; may be used from many threads at once. */
typedef struct MlxlmHttpClient MlxlmHttpClient;
/* One answer, its body still to be read; used from one thread at a time. */
typedef struct MlxlmHttpResponse MlxlmHttpResponse;

/* `certificates`: PEM text of the authorities to trust, empty for Mozilla's. `timeout_ms` bounds connecting, and each
 * wait for more bytes. Proxies are taken from HTTPS_PROXY and its relatives. */
MlxlmNetStatus mlxlm_http_client_new(const char* user_agent, size_t user_agent_size, const char* certificates,
                                     size_t certificates_size, uint32_t timeout_ms, MlxlmHttpClient** out,
                                     MlxlmString* error);
void mlxlm_http_client_free(MlxlmHttpClient* client);

/* Sends GET and returns when the headers are there, whatever the status. Redirects are followed; `authorization`
 * (empty: none) is sent again only to the same host. `range_start` > 0 asks for the bytes from there on. */
MlxlmNetStatus mlxlm_http_get(const MlxlmHttpClient* client, const char* url, size_t url_size,
                              const char* authorization, size_t authorization_size, uint64_t range_start,
                              MlxlmHttpResponse** out, MlxlmString* error);
void mlxlm_http_response_free(MlxlmHttpResponse* response);
int mlxlm_http_status(const MlxlmHttpResponse* response);
/* The value of a header; empty when there is none. */
void mlxlm_http_header(const MlxlmHttpResponse* response, const char* name, size_t size, MlxlmString* out);
/* Reads up to `capacity` bytes; *size is 0 at the end of the body. A body that ends before its length is
 * MLXLM_NET_BROKEN.
 */
MlxlmNetStatus mlxlm_http_read(MlxlmHttpResponse* response, char* buffer, size_t capacity, size_t* size,
                               MlxlmString* error);

typedef struct MlxlmDigest MlxlmDigest;
/* SHA-1 where `sha256` is 0, else SHA-256. */
MlxlmDigest* mlxlm_digest_new(int sha256);
void mlxlm_digest_update(MlxlmDigest* digest, const char* data, size_t size);
/* The digest so far in lower-case hexadecimal digits: 40 or 64. */
void mlxlm_digest_hex(const MlxlmDigest* digest, MlxlmString* out);
void mlxlm_digest_free(MlxlmDigest* digest);

#ifdef __cplusplus
}
#endif
#endif /* MLXLM_NET_H_ */
