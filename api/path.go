package api

import (
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"

	"comet/internal/errs"
	"comet/internal/words"
	"comet/models"
)

// pathID returns an id that stands in the address of a request without
// parameters. It reports unknown parameters, and errs.NotFound as decodeID does.
func pathID(r *http.Request, name string) (string, error) {
	if err := newQuery(r).Err(); err != nil {
		return "", err
	}
	return decodeID(r, name)
}

// decodeID returns an id that stands in the address. Nothing has one that is too
// long or that no database can look for: errs.NotFound.
func decodeID(r *http.Request, name string) (string, error) {
	id := chi.URLParam(r, name)
	if r.URL.RawPath != "" { // the router goes by the address as it was sent
		id, _ = url.PathUnescape(id) // net/http has refused what cannot be decoded
	}
	if len(id) > models.MaxIDLength || !storable(id) {
		return "", errs.New(errs.NotFound, "there is nothing at %s", clipPath(r.URL.EscapedPath()))
	}
	return id, nil
}

// storable reports whether every database can compare a column with the text.
func storable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsRune(text, 0)
}

// clipPath bounds a path in logs and problem documents.
func clipPath(s string) string { return words.ClipTo(s, 512) }
