-- Webhooks and upstreams contain the id of the token that created them. Webhooks had it in token_objects.

-- +goose Up
ALTER TABLE upstreams ADD COLUMN token_id TEXT COLLATE "C" NOT NULL DEFAULT ''; -- '' for those of earlier versions
ALTER TABLE webhooks ADD COLUMN token_id TEXT COLLATE "C" NOT NULL DEFAULT '';
UPDATE webhooks SET token_id = coalesce((SELECT token_id FROM token_objects o WHERE o.kind = 'webhooks' AND o.id = webhooks.id), '');
DELETE FROM token_objects WHERE kind = 'webhooks';
CREATE INDEX token_objects_id ON token_objects (id);

-- +goose Down
DROP INDEX token_objects_id;
INSERT INTO token_objects (token_id, kind, id) SELECT token_id, 'webhooks', id FROM webhooks WHERE token_id IN (SELECT id FROM tokens);
ALTER TABLE webhooks DROP COLUMN token_id;
ALTER TABLE upstreams DROP COLUMN token_id;
