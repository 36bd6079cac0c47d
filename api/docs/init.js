// Starts Swagger UI on this server's own description. It is a file of its own so that
// the page's Content-Security-Policy can forbid inline scripts.
window.addEventListener("DOMContentLoaded", () => {
  window.ui = SwaggerUIBundle({
    url: "openapi.json",
    dom_id: "#swagger-ui",
    deepLinking: true,
    // The default sends the description to a validator on the internet.
    validatorUrl: null,
    defaultModelsExpandDepth: 0,
  });
});
