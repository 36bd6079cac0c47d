package dashboard

import (
	"net/http"

	"github.com/go-chi/chi/v5"
)

// Mount adds the routes of the page to a router.
func Mount(r chi.Router) {
	files := loadAssets()
	r.Get("/ui", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/ui/", http.StatusFound) })
	r.Get("/ui/assets/*", files.serveAsset)
	r.Get("/ui/*", files.serveIndex)
}
