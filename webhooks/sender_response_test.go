package webhooks

import (
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"comet/store"
)

func TestExcerpt(t *testing.T) {
	t.Parallel()
	bodies := map[string]struct{ body, want string }{
		"short":            {"upstream connect error\n", "upstream connect error\n"},
		"exactly full":     {strings.Repeat("x", 1024), strings.Repeat("x", 1024)},
		"long":             {strings.Repeat("x", 1025), strings.Repeat("x", 1024)},
		"cut-two":          {strings.Repeat("x", 1023) + "é", strings.Repeat("x", 1023)},
		"cut-four":         {strings.Repeat("x", 1021) + "🦊 behind", strings.Repeat("x", 1021)},
		"whole-four":       {strings.Repeat("x", 1020) + "🦊 behind", strings.Repeat("x", 1020) + "🦊"},
		"no-text":          {"a\xff\xfeb", "a��b"},
		"only-tails":       {strings.Repeat("\x80", 1024), strings.Repeat("�", 341)},
		"control":          {"a\x00b\x1b[31m\r\n\tc\u009b", "a�b�[31m\n\tc�"},
		"cut-inside-bytes": {strings.Repeat("\xff", 2000), strings.Repeat("�", 341)},
	}
	server := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("chunked") {
			w.(http.Flusher).Flush()
		}
		_, _ = io.WriteString(w, bodies[r.URL.Path[1:]].body)
	})
	s := testSender(t)
	for name, c := range bodies {
		for _, how := range []string{"", "?chunked"} {
			t.Run(name+how, func(t *testing.T) {
				t.Parallel()
				out := s.send(t.Context(), hookTo(server.URL+"/"+name+how), delivery(), sentAt)
				require.Equal(t, c.want, out.attempt.ResponseExcerpt)
			})
		}
	}
}

func TestACompressedAnswerIsNotUnpacked(t *testing.T) {
	t.Parallel()
	server := receiver(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = io.WriteString(z, strings.Repeat("bomb", 100_000))
		_ = z.Close()
	})
	out := testSender(t).send(t.Context(), hookTo(server.URL), delivery(), sentAt)
	require.True(t, out.succeeded)
	require.NotContains(t, out.attempt.ResponseExcerpt, "bomb")
}

// FuzzShown: whatever a body begins with, a database and a terminal can take it.
func FuzzShown(f *testing.F) {
	f.Add([]byte("plain"))
	f.Add([]byte(strings.Repeat("é", 512)))
	f.Add([]byte(strings.Repeat("\x00\xff", 512)))
	f.Fuzz(func(t *testing.T, body []byte) {
		text := excerptText(body[:min(len(body), store.MaxResponseExcerpt)])
		require.True(t, utf8.ValidString(text))
		require.LessOrEqual(t, len(text), store.MaxResponseExcerpt)
		for _, r := range text {
			require.True(t, r == '\n' || r == '\t' || !unicode.IsControl(r), "%q", text)
		}
		if utf8.Valid(body) && len(body) < store.MaxResponseExcerpt && !strings.ContainsFunc(string(body), unicode.IsControl) {
			require.Equal(t, string(body), text)
		}
	})
}
