package api

import (
	"net/http"
	"strings"

	"github.com/klauspost/compress/gzhttp"
)

// gzipMinSize is the smallest answer worth compressing, in bytes.
const gzipMinSize = 1024

// compress sends answers of gzipMinSize and more as gzip where the client takes
// it. The ETag of a compressed answer ends in gzipSuffix. Event streams are left
// alone: they must leave at once.
func compress() func(http.Handler) http.Handler {
	wrap, err := gzhttp.NewWrapper(
		gzhttp.MinSize(gzipMinSize), gzhttp.SuffixETag(gzipSuffix), gzhttp.EnableZstd(false),
		gzhttp.ContentTypeFilter(func(contentType string) bool {
			return !strings.HasPrefix(contentType, "text/event-stream") && gzhttp.DefaultContentTypeFilter(contentType)
		}))
	if err != nil {
		panic(err) // the options are constants; any test finds a wrong one
	}
	return func(next http.Handler) http.Handler { return wrap(next) }
}
