package api

import (
	"net/http"
	"strconv"
	"strings"
)

// byteRange reads a Range of bytes (RFC 9110 §14.2) of something with a size: the bytes
// [from, to). Without one it is all of it. So it is for a Range the server may leave
// aside: several at once, another unit, one that is malformed, and one with an If-Range,
// because there is no validator that it could name. One that begins behind the end has
// from at size or above.
func byteRange(r *http.Request, size int64) (from, to int64, partial bool) {
	lines := r.Header["Range"]
	if len(lines) != 1 || r.Header.Get("If-Range") != "" {
		return 0, size, false
	}
	unit, spec, _ := strings.Cut(lines[0], "=")
	first, last, ok := strings.Cut(strings.TrimSpace(spec), "-")
	if !ok || !strings.EqualFold(strings.TrimSpace(unit), "bytes") {
		return 0, size, false
	}
	if first == "" { // the last bytes
		n, ok := bytePosition(last)
		if !ok {
			return 0, size, false
		}
		if n == 0 {
			return size, size, true
		}
		return max(size-n, 0), size, true
	}
	from, ok = bytePosition(first)
	if !ok {
		return 0, size, false
	}
	if last == "" {
		return from, size, true
	}
	end, ok := bytePosition(last)
	if !ok || end < from {
		return 0, size, false
	}
	return from, min(end, size-1) + 1, true
}

// bytePosition reads digits; what is too large to hold lies behind every end.
func bytePosition(text string) (int64, bool) {
	if !isDigits(text) || strings.HasPrefix(text, "-") {
		return 0, false
	}
	n, _ := strconv.ParseInt(text, 10, 64) // the largest number where it is too large
	return n, true
}
