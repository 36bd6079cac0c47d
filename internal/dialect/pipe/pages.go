package pipe

import (
	"context"
	"strconv"

	lru "github.com/hashicorp/golang-lru/v2"

	"comet/models"
)

// The bounds of the pages that are kept: of so many texts, of those that have more than
// so many bytes. None is longer than maxFetched.
const (
	keptTexts = 4
	longText  = 4 << 10
)

// texts keeps the long texts that are being fetched, so that one of thousands of pages is
// not read from the database for each of them. It is safe for concurrent use.
type texts struct {
	all *lru.Cache[string, string]
}

func newTexts() texts {
	all, _ := lru.New[string, string](keptTexts) // fails only for a size that is not positive
	return texts{all}
}

// storedOnce is stored for a text of which another page may be asked for soon.
func (d *Dialect) storedOnce(ctx context.Context, t models.Task, field string) (string, error) {
	// What a task was given never changes, the rest only until it has ended.
	if field != "params" && !t.State.Ended() {
		return d.stored(ctx, t, field)
	}
	key := t.ID + "/" + strconv.FormatInt(t.Version, 10) + "/" + field
	if text, ok := d.texts.all.Get(key); ok {
		return text, nil
	}
	text, err := d.stored(ctx, t, field)
	if err == nil && len(text) > longText {
		d.texts.all.Add(key, text)
	}
	return text, err
}
