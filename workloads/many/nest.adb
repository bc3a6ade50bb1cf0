--  Nested subprograms with static links, exceptions, unconstrained results on the secondary stack, a task.
with Ada.Text_IO; use Ada.Text_IO;
procedure Nest is
   Total : Long_Integer := 0;
   function Fib (N : Integer) return Long_Integer is
     (if N < 2 then Long_Integer (N) else Fib (N - 1) + Fib (N - 2));
   function Image (N : Integer) return String is
   begin
      return Integer'Image (N) & " of" & Integer'Image (N * 2);
   end Image;
   procedure Outer (N : Integer) is
      Here : Long_Integer := 0;
      procedure Inner (Depth : Integer) is
      begin
         Here := Here + Fib (6);
         if Depth > 0 then
            Inner (Depth - 1);
         elsif N mod 3 = 0 then
            raise Constraint_Error with "bottom";
         end if;
      end Inner;
   begin
      Inner (4);
      Total := Total + Here;
   exception
      when Constraint_Error => Total := Total + Long_Integer (Image (N)'Length);
   end Outer;
   task Worker;
   task body Worker is
   begin
      for I in 1 .. 5 loop
         delay 0.0;
      end loop;
   end Worker;
begin
   for I in 1 .. 40 loop
      Outer (I);
   end loop;
   Put_Line (Long_Integer'Image (Total));
end Nest;
