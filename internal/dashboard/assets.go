package dashboard

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"net/http"
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
)

//go:embed dist
var dist embed.FS

// index is the document of every view: the page reads the view from the path.
const index = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>comet</title>
<link rel="icon" href="/ui/assets/%s">
<link rel="stylesheet" href="/ui/assets/%s">
<script type="module" src="/ui/assets/%s"></script>
%s</head>
<body>
<div id="app"></div>
<noscript>The dashboard needs JavaScript. The REST API is described at <a href="/docs">/docs</a>.</noscript>
</body>
</html>
`

// staticImport matches an import in the bundle whose file is loaded before the importer runs, unlike import("…").
var staticImport = regexp.MustCompile(`(?:from|import)\s*"\./([^"]+)"`)

// policy allows only the page's own files, and no code from strings (Trusted Types).
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; " +
	"form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// asset is a file of the page under a name that contains its hash, so that browsers can cache it for ever.
type asset struct {
	name, contentType string
	content           []byte
}

// assets are the files of the page by their names in URLs.
type assets struct {
	index []byte
	files map[string]asset
}

func loadAssets() *assets {
	out := &assets{files: map[string]asset{}}
	entries, _ := dist.ReadDir("dist") // the folder is part of the program
	names := map[string]string{}
	for _, e := range entries {
		content, _ := dist.ReadFile("dist/" + e.Name())
		name, extension := e.Name(), path.Ext(e.Name())
		if !strings.Contains(name, "-") { // the other names already contain the hash
			sum := sha256.Sum256(content)
			name = strings.TrimSuffix(name, extension) + "-" + hex.EncodeToString(sum[:6]) + extension
		}
		names[e.Name()] = name
		out.files[name] = asset{name, contentTypes[extension], content}
	}
	var preloads strings.Builder // lets browsers load the imported files together with the first file
	for _, imported := range staticImport.FindAllSubmatch(out.files[names["app.js"]].content, -1) {
		fmt.Fprintf(&preloads, "<link rel=\"modulepreload\" href=\"/ui/assets/%s\">\n", imported[1])
	}
	out.index = fmt.Appendf(nil, index, names["icon.svg"], names["app.css"], names["app.js"], &preloads)
	return out
}

var contentTypes = map[string]string{ //nolint:gochecknoglobals // a constant table
	".svg": "image/svg+xml", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
}

// mountAssets adds the routes of the page's files to a router.
func mountAssets(r chi.Router) {
	files := loadAssets()
	r.Get("/ui", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/ui/", http.StatusFound) })
	r.Get("/ui/assets/*", files.serveAsset)
	r.Get("/ui/*", files.serveIndex)
}

// serveAsset serves a file of the page.
func (a *assets) serveAsset(w http.ResponseWriter, r *http.Request) {
	file, ok := a.files[strings.TrimPrefix(r.URL.Path, "/ui/assets/")]
	if !ok {
		http.Error(w, "the dashboard has no such file; reload the page, because comet may have been updated", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", file.contentType)
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	http.ServeContent(w, r, file.name, time.Time{}, bytes.NewReader(file.content))
}

// serveIndex serves the document of every view.
func (a *assets) serveIndex(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", policy)
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(a.index))
}
