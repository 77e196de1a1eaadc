const MEMORY_BYTES = 256 * 1024 ** 2
const startedAt = () => performance.timeOrigin

/** What Deno tells of the machine: here it is nobody's, and nothing of it can be changed. */
export const machine = {
  hostname: () => 'localhost',
  uid: () => 1000,
  gid: () => 1000,
  osRelease: () => '6.1.0',
  osUptime: () => Math.max(0, Math.round((Date.now() - startedAt()) / 1000)),
  loadavg: () => [0, 0, 0],
  networkInterfaces: () => [],
  execPath: () => '/usr/bin/deno',
  memoryUsage: () => ({ rss: MEMORY_BYTES, heapTotal: MEMORY_BYTES, heapUsed: 0, external: 0 }),
  systemMemoryInfo: () => ({
    ...{ total: MEMORY_BYTES, free: MEMORY_BYTES, available: MEMORY_BYTES },
    ...{ buffers: 0, cached: 0, swapTotal: 0, swapFree: 0 },
  }),
  consoleSize(): never {
    throw new Error('Inappropriate ioctl for device (os error 25)')
  },
  addSignalListener() {},
  removeSignalListener() {},
  exit() {},
  kill() {},
}
