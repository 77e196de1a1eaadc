-- `http2` was accepted and had no effect: every drain has been sending by the version that the runtime chooses.
UPDATE log_drains SET config = config || '{"http": "http1"}' WHERE config ->> 'http' = 'http2';
