-- A lease that ran out counts against its task only where its worker never came back.

-- Where tasks hold the table for longer the migration gives up, and can be run again.
SET LOCAL lock_timeout = '5s';

-- Leases of the task that ran out, for whatever reason; with the retries they number its attempts. lease_losses are those among
-- them that count.
ALTER TABLE task_queue ADD COLUMN lapses integer NOT NULL DEFAULT 0;
UPDATE task_queue SET lapses = lease_losses WHERE lease_losses > 0;

-- Each loss that counts, with the start of the worker that had the lease: once that one beats again, the loss counts no more.
CREATE TABLE task_loss (
    task_id    bigint NOT NULL REFERENCES task_queue (id) ON DELETE CASCADE,
    boot_nonce uuid NOT NULL,
    lost_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (task_id, lost_at)
);
CREATE INDEX task_loss_worker ON task_loss (boot_nonce);
