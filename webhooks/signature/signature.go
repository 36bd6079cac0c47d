// Package signature signs webhooks and verifies them, as Standard Webhooks 1.0 says:
// v1 is HMAC-SHA256 with a secret that both sides know, v1a is Ed25519, whose public
// half is public. Nothing in it reads a clock.
package signature

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"time"
)

// The headers of a webhook (Standard Webhooks, Webhook headers).
const (
	// HeaderID names the event; it is the same however often it is sent.
	HeaderID = "webhook-id"
	// HeaderTimestamp is when the attempt was made, in Unix seconds.
	HeaderTimestamp = "webhook-timestamp"
	// HeaderSignature holds the signatures, separated by spaces.
	HeaderSignature = "webhook-signature"
)

const (
	symmetric  = "v1"
	asymmetric = "v1a"
)

// Sign returns the v1 signature of an attempt: "v1," and base64. The id must not hold a full stop,
// which separates what is signed.
func Sign(secret []byte, id string, at time.Time, body []byte) string {
	return symmetric + "," + base64.StdEncoding.EncodeToString(digest(secret, id, Timestamp(at), body))
}

// SignAsymmetric is Sign with an Ed25519 seed of 32 bytes: "v1a," and base64.
func SignAsymmetric(seed []byte, id string, at time.Time, body []byte) string {
	signature := ed25519.Sign(ed25519.NewKeyFromSeed(seed), content(id, Timestamp(at), body))
	return asymmetric + "," + base64.StdEncoding.EncodeToString(signature)
}

// Timestamp writes a time for the header.
func Timestamp(at time.Time) string { return strconv.FormatInt(at.Unix(), 10) }

// content is what is signed.
func content(id, timestamp string, body []byte) []byte {
	out := make([]byte, 0, len(id)+len(timestamp)+len(body)+2)
	out = append(out, id...)
	out = append(out, '.')
	out = append(out, timestamp...)
	out = append(out, '.')
	return append(out, body...)
}

// digest is the HMAC-SHA256 of content, without a copy of the body.
func digest(secret []byte, id, timestamp string, body []byte) []byte {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(id + "." + timestamp + "."))
	mac.Write(body)
	return mac.Sum(nil)
}
