package dashboard

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// get requests a path of the page.
func get(t *testing.T, path string) *httptest.ResponseRecorder {
	r := chi.NewRouter()
	mountAssets(r)
	w := httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return w
}

// TestIndex checks that every view has the same document, which is never cached and allows only the page's own files.
func TestIndex(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/ui/", "/ui/tasks", "/ui/agents/nova", "/ui/workflows/wf_1?step=t1"} {
		w := get(t, path)
		require.Equal(t, http.StatusOK, w.Code, path)
		assert.Equal(t, "text/html; charset=utf-8", w.Header().Get("Content-Type"))
		assert.Equal(t, "no-store", w.Header().Get("Cache-Control"))
		assert.Equal(t, "same-origin", w.Header().Get("Cross-Origin-Opener-Policy"))
		assert.Equal(t, "no-referrer", w.Header().Get("Referrer-Policy"))
		csp := w.Header().Get("Content-Security-Policy")
		for _, directive := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "require-trusted-types-for 'script'"} {
			assert.Contains(t, csp, directive)
		}
		assert.NotContains(t, csp, "unsafe")
		assert.NotRegexp(t, `https?://`, w.Body.String(), "the document must load nothing from other hosts")
	}
	w := get(t, "/ui")
	assert.Equal(t, http.StatusFound, w.Code)
	assert.Equal(t, "/ui/", w.Header().Get("Location"))
}

// TestAssets checks that the files that the document and other files name exist and may be cached forever, and that old names do
// not exist.
func TestAssets(t *testing.T) {
	t.Parallel()
	names := regexp.MustCompile(`/ui/assets/[^"]+`).FindAllString(get(t, "/ui/").Body.String(), -1)
	require.Greater(t, len(names), 3)
	scripts, err := fs.Glob(dist, "dist/*.js")
	require.NoError(t, err)
	for _, script := range scripts {
		content, err := dist.ReadFile(script)
		require.NoError(t, err)
		for _, imported := range regexp.MustCompile(`(?:from|import\s*\(?)\s*"\./([^"]+)"`).FindAllSubmatch(content, -1) {
			names = append(names, "/ui/assets/"+string(imported[1]))
		}
	}
	for _, name := range names {
		w := get(t, name)
		require.Equal(t, http.StatusOK, w.Code, name)
		assert.Equal(t, "public, max-age=31536000, immutable", w.Header().Get("Cache-Control"))
		assert.Regexp(t, "^(image/svg|text/css|text/javascript)", w.Header().Get("Content-Type"))
	}
	w := get(t, "/ui/assets/app-000000000000.js")
	assert.Equal(t, http.StatusNotFound, w.Code)
	assert.Contains(t, w.Body.String(), "reload the page")
}

// TestFirstLoad checks that a browser loads at most 90 KB, compressed, before the page works (docs/dashboard.md), and that the
// document names all these files, so that no file has to wait for another.
func TestFirstLoad(t *testing.T) {
	t.Parallel()
	total, loaded := 0, map[string]bool{}
	document := get(t, "/ui/").Body.String()
	var load func(name string)
	load = func(name string) {
		if loaded[name] {
			return
		}
		loaded[name] = true
		content, err := dist.ReadFile("dist/" + name)
		require.NoError(t, err)
		var compressed bytes.Buffer
		w := gzip.NewWriter(&compressed)
		_, err = w.Write(content)
		require.NoError(t, err)
		require.NoError(t, w.Close())
		total += compressed.Len()
		for _, imported := range staticImport.FindAllSubmatch(content, -1) {
			assert.Contains(t, document, `<link rel="modulepreload" href="/ui/assets/`+string(imported[1])+`">`)
			load(string(imported[1]))
		}
	}
	for _, name := range []string{"app.js", "app.css", "icon.svg"} {
		load(name)
	}
	t.Logf("the first load has %d bytes in %d files", total, len(loaded))
	assert.LessOrEqual(t, total, 90<<10)
}

// TestLibraries checks the files of third_party/js against their checksums.
func TestLibraries(t *testing.T) {
	t.Parallel()
	const folder = "../../third_party/js"
	sums, err := os.Open(filepath.Join(folder, "SHA256SUMS"))
	require.NoError(t, err)
	defer func() { _ = sums.Close() }()
	listed := map[string]bool{"SHA256SUMS": true, "README.md": true}
	for lines := bufio.NewScanner(sums); lines.Scan(); {
		want, name, _ := strings.Cut(lines.Text(), "  ")
		content, err := os.ReadFile(filepath.Join(folder, name)) //nolint:gosec // the test reads the repository
		require.NoError(t, err)
		got := sha256.Sum256(content)
		assert.Equal(t, want, hex.EncodeToString(got[:]), name)
		listed[name] = true
	}
	err = filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			name, _ := filepath.Rel(folder, path)
			assert.True(t, listed[filepath.ToSlash(name)], "%s has no checksum", name)
		}
		return err
	})
	require.NoError(t, err)
}

// TestSourceHasNoHTML checks that the page inserts no text as HTML.
func TestSourceHasNoHTML(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("ui/*.ts*")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, name := range files {
		content, err := os.ReadFile(name)
		require.NoError(t, err)
		assert.NotRegexp(t, `dangerouslySetInnerHTML|innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function`, string(content), name)
	}
}
