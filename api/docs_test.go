package api

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"comet/openapi"
)

func docsServer(t *testing.T) *httptest.Server {
	t.Helper()
	r := chi.NewRouter()
	r.Use(compress())
	docsRoutes(r)
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	return server
}

// fetchDoc returns the answer to a GET with the headers given as name, value, ….
func fetchDoc(t *testing.T, url string, headers ...string) (*http.Response, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return response, string(body)
}

func TestDescriptionIsServed(t *testing.T) {
	t.Parallel()
	server := docsServer(t)
	for path, want := range map[string]struct{ contentType, body string }{
		"/openapi.json": {"application/json", string(openapi.JSON())},
		"/openapi.yaml": {"application/yaml", string(openapi.YAML())},
	} {
		t.Run(path+" is the embedded description", func(t *testing.T) {
			t.Parallel()
			response, body := fetchDoc(t, server.URL+path)
			require.Equal(t, http.StatusOK, response.StatusCode)
			require.Equal(t, want.contentType, response.Header.Get("Content-Type"))
			require.Equal(t, want.body, body)
		})
		t.Run(path+" may be kept and is revalidated by its ETag", func(t *testing.T) {
			t.Parallel()
			for _, encoding := range []string{"identity", "gzip"} {
				response, _ := fetchDoc(t, server.URL+path, "Accept-Encoding", encoding)
				tag := response.Header.Get("ETag")
				require.Regexp(t, `^"[0-9a-f]{16}(-gzip)?"$`, tag)
				require.Equal(t, "public, no-cache", response.Header.Get("Cache-Control"))

				response, body := fetchDoc(t, server.URL+path, "Accept-Encoding", encoding, "If-None-Match", tag)
				require.Equal(t, http.StatusNotModified, response.StatusCode)
				require.Equal(t, tag, response.Header.Get("ETag"))
				require.Empty(t, body)

				response, _ = fetchDoc(t, server.URL+path, "If-None-Match", `"0123456789abcdef"`)
				require.Equal(t, http.StatusOK, response.StatusCode)
			}
		})
	}
}

func TestDocsPage(t *testing.T) {
	t.Parallel()
	server := docsServer(t)
	response, page := fetchDoc(t, server.URL+"/docs")
	require.Equal(t, http.StatusOK, response.StatusCode)
	require.Equal(t, "text/html; charset=utf-8", response.Header.Get("Content-Type"))

	t.Run("all resources are on this server", func(t *testing.T) {
		t.Parallel()
		types := map[string]string{".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".ico": "image/x-icon"}
		links := regexp.MustCompile(`(?:src|href)="([^"]+)"`).FindAllStringSubmatch(page, -1)
		require.NotEmpty(t, links)
		for _, link := range links {
			require.NotContains(t, link[1], "//", "an address elsewhere")
			response, body := fetchDoc(t, server.URL+"/"+link[1])
			require.Equal(t, http.StatusOK, response.StatusCode, link[1])
			require.NotEmpty(t, body)
			for suffix, contentType := range types {
				if strings.HasSuffix(link[1], suffix) {
					require.Equal(t, contentType, response.Header.Get("Content-Type"))
				}
			}
		}
	})

	t.Run("its policy allows no other server and no inline script", func(t *testing.T) {
		t.Parallel()
		policy := map[string]string{}
		for directive := range strings.SplitSeq(response.Header.Get("Content-Security-Policy"), "; ") {
			name, sources, _ := strings.Cut(directive, " ")
			policy[name] = sources
		}
		require.Equal(t, "'none'", policy["default-src"])
		require.Equal(t, "'self'", policy["script-src"])
		require.Equal(t, "'self'", policy["connect-src"])
		require.NotContains(t, response.Header.Get("Content-Security-Policy"), "http")
		require.NotRegexp(t, `<script[^>]*>[^<]`, page, "an inline script would not run")
	})

	t.Run("it loads this server's description and no validator", func(t *testing.T) {
		t.Parallel()
		_, script := fetchDoc(t, server.URL+"/docs/init.js")
		require.Contains(t, script, `url: "openapi.json"`)
		require.Contains(t, script, "validatorUrl: null")
		require.NotContains(t, script, "//petstore")
	})

	t.Run("other files are not served", func(t *testing.T) {
		t.Parallel()
		for _, name := range []string{"swagger-ui-bundle.js.map", "swagger-initializer.js", "index.html", "../docs.go"} {
			response, _ := fetchDoc(t, server.URL+"/docs/"+name)
			require.Equal(t, http.StatusNotFound, response.StatusCode, name)
		}
	})
}
