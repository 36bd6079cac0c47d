package api

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
)

// browser is the header Accept of a browser.
const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

// browse returns the response to a request of a browser, without a token.
func browse(s http.Handler, method, path, accept string) (*http.Response, string) {
	r := httptest.NewRequest(method, path, nil)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Result(), w.Body.String()
}

// requireHTML checks that every element of a page is closed, and that the page uses no script and no
// resource of another server.
func requireHTML(t *testing.T, response *http.Response, body string) {
	t.Helper()
	require.Equal(t, http.StatusOK, response.StatusCode)
	require.Equal(t, "text/html; charset=utf-8", response.Header.Get("Content-Type"))
	require.Equal(t, docsPolicy, response.Header.Get("Content-Security-Policy"))
	require.Equal(t, "no-referrer", response.Header.Get("Referrer-Policy"))
	require.Equal(t, "nosniff", response.Header.Get("X-Content-Type-Options"))
	require.Equal(t, "public, no-cache", response.Header.Get("Cache-Control"))
	d := xml.NewDecoder(strings.NewReader(regexp.MustCompile(`<(meta|link)([^>]*)>`).ReplaceAllString(body, "<$1$2/>")))
	d.Entity = xml.HTMLEntity
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err, body)
		if e, ok := token.(xml.StartElement); ok {
			require.NotContains(t, []string{"script", "style", "iframe"}, e.Name.Local)
			for _, a := range e.Attr {
				require.False(t, strings.HasPrefix(a.Name.Local, "on") || a.Name.Local == "style", "the policy forbids %s", a.Name.Local)
				if a.Name.Local == "href" || a.Name.Local == "src" {
					require.Regexp(t, `^/[^/]|^/$`, a.Value)
				}
			}
		}
	}
}

func TestStartPage(t *testing.T) {
	t.Parallel()
	s := newDescribedServer(t)

	t.Run("shows the state, links and first steps to clients without a token", func(t *testing.T) {
		t.Parallel()
		response, body := browse(s.handler, http.MethodGet, "/", browser)
		requireHTML(t, response, body)
		require.Contains(t, body, `<strong class="ready">ready</strong>`)
		require.NotContains(t, body, "<dt>Agents</dt>", "the page needs no token, so it shows nothing of the data")
		require.Contains(t, body, "export COMET_SERVER=http://example.com")
		for _, link := range regexp.MustCompile(`href="([^"]+)"`).FindAllStringSubmatch(body, -1) {
			if response, _ := browse(s.handler, http.MethodGet, link[1], browser); link[1] != "/metrics" { // the test has none
				require.Equal(t, http.StatusOK, response.StatusCode, link[1])
			}
		}
	})

	t.Run("is a page for clients that accept anything, and JSON for those that want it", func(t *testing.T) {
		t.Parallel()
		response, body := browse(s.handler, http.MethodGet, "/", "*/*")
		requireHTML(t, response, body)
		response, body = browse(s.handler, http.MethodGet, "/", "application/json")
		require.Equal(t, "application/json", response.Header.Get("Content-Type"))
		require.Contains(t, response.Header.Values("Vary"), "Accept")
		var status serverStatus
		require.NoError(t, json.Unmarshal([]byte(body), &status))
		require.Equal(t, "ready", status.Status)
		require.NotContains(t, body, `"agents"`)
	})

	t.Run("has no body for HEAD", func(t *testing.T) {
		t.Parallel()
		server := httptest.NewServer(s.handler)
		t.Cleanup(server.Close)
		request, err := http.NewRequestWithContext(t.Context(), http.MethodHead, server.URL+"/", nil)
		require.NoError(t, err)
		response, err := server.Client().Do(request)
		require.NoError(t, err)
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.Empty(t, body)
		require.Equal(t, http.StatusOK, response.StatusCode)
		require.Equal(t, "text/html; charset=utf-8", response.Header.Get("Content-Type"))
	})

	t.Run("escapes the host of the request", func(t *testing.T) {
		t.Parallel()
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host = `x"><script>`
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, r)
		require.NotContains(t, w.Body.String(), "<script>")
	})

	t.Run("names the failed checks, without the cause of an internal error", func(t *testing.T) {
		t.Parallel()
		broken := *s.Server
		broken.opts.Checks = map[string]func(context.Context) error{
			"database": func(context.Context) error { return errs.New(errs.Unavailable, "the database does not respond") },
			"disk":     func(context.Context) error { return errors.New("secret path") },
			"bus":      func(context.Context) error { return nil },
		}
		broken.log = slog.New(slog.DiscardHandler)
		response, body := browse(broken.router(), http.MethodGet, "/", browser)
		requireHTML(t, response, body)
		require.Contains(t, body, `<strong class="unavailable">unavailable</strong>`)
		require.Contains(t, body, "<dd>database: the database does not respond</dd>")
		require.NotContains(t, body, "secret path")
		require.NotContains(t, body, "bus")
	})

	t.Run("is not the only address of the API reference and the icon", func(t *testing.T) {
		t.Parallel()
		response, _ := browse(s.handler, http.MethodGet, "/docs/", browser)
		require.Equal(t, http.StatusMovedPermanently, response.StatusCode)
		require.Equal(t, "/docs", response.Header.Get("Location"))
		response, icon := browse(s.handler, http.MethodGet, "/favicon.ico", "image/*")
		require.Equal(t, "image/x-icon", response.Header.Get("Content-Type"))
		require.True(t, strings.HasPrefix(icon, "\x00\x00\x01\x00"))
	})
}

func TestProblemPages(t *testing.T) {
	t.Parallel()
	s := newDescribedServer(t)
	require.Len(t, problemTexts(), len(errs.Internal.All()))
	for _, code := range errs.Internal.All() {
		t.Run(string(code), func(t *testing.T) {
			t.Parallel()
			response, body := browse(s.handler, http.MethodGet, "/problems/"+string(code), browser)
			requireHTML(t, response, body)
			require.Contains(t, response.Header.Values("Vary"), "Accept")
			require.Contains(t, body, "<h1>"+code.Title()+"</h1>")

			response, body = browse(s.handler, http.MethodGet, "/problems/"+string(code), "*/*")
			require.Equal(t, "application/json", response.Header.Get("Content-Type"))
			var about ProblemType
			require.NoError(t, json.Unmarshal([]byte(body), &about))
			require.Equal(t, statusOf(code), about.Status)
			for _, text := range []string{about.Meaning, about.Action} {
				require.Regexp(t, `^\S.*\.$`, text)
			}
		})
	}
	for path, detail := range map[string]string{"/problems/none": "<p>there is no problem type &#34;none&#34;.</p>", "/none<": "<p>there is no resource at /none%3C.</p>"} {
		response, body := browse(s.handler, http.MethodGet, path, browser)
		require.Equal(t, http.StatusNotFound, response.StatusCode)
		require.Equal(t, "text/html; charset=utf-8", response.Header.Get("Content-Type"))
		require.Equal(t, docsPolicy, response.Header.Get("Content-Security-Policy"))
		require.Contains(t, body, "<h1>"+errs.NotFound.Title()+"</h1>")
		require.Contains(t, body, detail)
		response, _ = browse(s.handler, http.MethodGet, path, "*/*")
		require.Equal(t, contentTypeProblem, response.Header.Get("Content-Type"))
	}
	response, _ := browse(s.handler, http.MethodGet, "/api/v1/none", browser)
	require.Equal(t, contentTypeProblem, response.Header.Get("Content-Type"))
	require.Equal(t, http.StatusNotFound, response.StatusCode)
}

// TestPagesEscapeTheirValues checks that the templates of pages, which text/template executes, print values only through html.
func TestPagesEscapeTheirValues(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("docs/*.html")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, action := range regexp.MustCompile(`\{\{-? *([^ }]*)`).FindAllStringSubmatch(string(text), -1) {
			require.Contains(t, []string{"html", "if", "range", "end"}, action[1], "%s: %s", file, action[0])
		}
	}
}
