// /v1/embeddings.
#include "server/api/service.h"

namespace moetier::server {

void add_embedding_routes(Routes& routes) {
  const auto handler = [](const httplib::Request&, const std::string& body, httplib::Response&) {
    const Json json = parse_body(body);
    Fields(json).need("input");
    throw ApiError(501, "this model gives no embeddings: it was made to continue text", "", "embeddings_not_supported");
  };
  for (const char* path : {"/v1/embeddings", "/embeddings", "/embedding"}) routes.post(path, Cost::work, handler);
}

}  // namespace moetier::server
