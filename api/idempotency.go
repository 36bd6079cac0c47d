package api

import (
	"crypto/sha256"
	"net/http"
	"strings"

	"comet/models"
)

// maxIdempotencyKey is the longest Idempotency-Key, in bytes.
const maxIdempotencyKey = 255

// once reads the Idempotency-Key of a request; nil without one. render makes the
// answer that is stored and sent again; it leaves out what is shown only once.
func (s *Server) once(r *http.Request, body []byte, render func(result any) (models.StoredResponse, error)) (*models.Idempotency, error) {
	lines := r.Header["Idempotency-Key"]
	if len(lines) == 0 {
		return nil, nil //nolint:nilnil // the header is optional
	}
	key := lines[0]
	if len(lines) > 1 || key == "" || len(key) > maxIdempotencyKey || strings.ContainsFunc(key, notVisible) {
		return nil, invalidHeader("Idempotency-Key", "idempotency_key",
			"Idempotency-Key must be one value of 1 to %d visible ASCII characters", maxIdempotencyKey)
	}
	h := sha256.New()
	h.Write([]byte(r.Method + " " + r.URL.RequestURI() + "\n" + r.Header.Get("Content-Type") + "\n"))
	h.Write(body)
	o := &models.Idempotency{Principal: caller(r).TokenID, Key: key, Render: render}
	h.Sum(o.RequestHash[:0])
	return o, nil
}

func notVisible(r rune) bool { return r < 0x21 || r > 0x7e }

// replayed sends the stored answer of a request that was made before; it reports
// whether there was one.
func (s *Server) replayed(w http.ResponseWriter, o *models.Idempotency) bool {
	if o == nil || o.Replay == nil {
		return false
	}
	w.Header().Set("Idempotency-Replayed", "true")
	s.writeAnswer(w, *o.Replay)
	return true
}
