import { type ChildProcess, spawn } from 'node:child_process'
import { subscribe } from 'node:diagnostics_channel'
import { platform } from 'node:os'

// Reads `+ pid` and `- pid`; its input ends when we do, however we end, and it then stops who is left.
const SCRIPT = `
pids=' '
while read -r change pid; do
  case $change in
    +) pids="$pids$pid " ;;
    -) case $pids in *" $pid "*) pids="\${pids%% $pid *} \${pids#* $pid }" ;; esac ;;
  esac
done
for pid in $pids; do kill -INT "$pid" 2>/dev/null; done
`

let guarded = false

/**
 * From here on no program that we start outlives us, not even when we are killed and can no longer stop it; save those that
 * `mayOutlive` names.
 */
export function guardChildren(mayOutlive: (file: string) => boolean = () => false) {
  if (guarded || platform() === 'win32') return
  guarded = true
  const guard = spawn('/bin/sh', ['-c', SCRIPT], { detached: true, stdio: ['pipe', 'ignore', 'ignore'] })
  const { stdin } = guard
  guard.on('error', ignore)
  stdin.on('error', ignore)
  guard.unref()
  if ('unref' in stdin && typeof stdin.unref === 'function') stdin.unref()

  subscribe('child_process', (message) => {
    const { process: child } = message as { process: ChildProcess }
    // Its file is not known before.
    child.once('spawn', () => void (mayOutlive(child.spawnfile) || stdin.write(`+ ${child.pid}\n`)))
    child.once('exit', () => stdin.write(`- ${child.pid}\n`))
  })
}

// Without a guard all still works; only a violent end leaves programs behind.
function ignore() {}
