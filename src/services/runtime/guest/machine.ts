const startedAt = () => performance.timeOrigin

/**
 * Deno's functions about the machine. Packages call them while they load, so they return neutral values; times are
 * those of the program.
 */
export const machine = {
  hostname: () => 'localhost',
  uid: () => null,
  gid: () => null,
  osRelease: () => '',
  osUptime: () => Math.max(0, Math.round((Date.now() - startedAt()) / 1000)),
  loadavg: () => [0, 0, 0],
  networkInterfaces: () => [],
  execPath: () => '',
  consoleSize(): never {
    throw new Error('Inappropriate ioctl for device (os error 25)')
  },
  addSignalListener() {},
  removeSignalListener() {},
  exit() {},
  kill() {},
}
